// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/map/no_bias.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("no bias is a zero for every score, which changes none of them", "[host]") {
  STATIC_REQUIRE(std::is_trivially_copyable_v<no_bias>);
  STATIC_REQUIRE(std::is_empty_v<no_bias>);
  for (std::int64_t const key : {std::int64_t{0}, std::int64_t{5}, std::numeric_limits<std::int64_t>::max()}) {
    CHECK(no_bias{}(1, 2, 3, key) == 0.0F);
    CHECK_FALSE(std::signbit(no_bias{}(1, 2, 3, key)));
  }
  CHECK(-INFINITY + no_bias{}(0, 0, 0, 0) == -INFINITY);
}
