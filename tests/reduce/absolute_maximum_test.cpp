// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>

#include <tessera/reduce/absolute_maximum.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"

using tessera::absolute_maximum_reducer;
using tessera::testing::check_laws;

TEST_CASE("largest magnitudes keep the laws exactly", "[host]") {
  CHECK(check_laws<absolute_maximum_reducer<float>>({3.0F, -4.0F, 0.0F, -1e-40F, NAN, -INFINITY}).text().empty());
}

TEST_CASE("the largest magnitude is never negative and passes over NaN", "[host]") {
  absolute_maximum_reducer<double> const reducer;
  double largest = reducer.identity();
  CHECK(largest == 0.0);
  for (double value : {-4.0, 3.0, std::nan(""), -0.0}) {
    reducer.push(largest, value);
  }
  CHECK(largest == 4.0);
}
