// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>

#include <tessera/select/query_group.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a group of queries agrees by the largest or by the mean share", "[host]") {
  float largest = group_max{}.identity();
  float mean = group_mean{}.identity();
  for (float share : {0.1F, 0.7F, 0.4F}) {
    group_max{}.push(largest, std::log(share));
    group_mean{}.push(mean, std::log(share));
  }
  CHECK(group_max{}.value(largest, 3) == std::log(0.7F));
  CHECK(group_mean{}.value(mean, 3) == Approx(0.4));
}
