// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>

#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"

using tessera::interval;
using tessera::minimum_maximum_reducer;
using tessera::testing::check_laws;

TEST_CASE("ranges keep the laws exactly, with infinities and NaN too", "[host]") {
  CHECK(check_laws<minimum_maximum_reducer<float>>({3.0F, -1.0F, 1e-40F, INFINITY, NAN, -0.0F, 0.0F}).text().empty());
  CHECK(check_laws<minimum_maximum_reducer<int>>({3, std::numeric_limits<int>::min(), 7}).text().empty());
}

TEST_CASE("a range passes over NaN and is empty without numbers", "[host]") {
  minimum_maximum_reducer<float> const reducer;
  auto range = reducer.identity();
  reducer.push(range, NAN);
  CHECK(range.minimum > range.maximum);
  reducer.push(range, 2.0F);
  reducer.push(range, NAN);
  CHECK(range == interval<float>{2.0F, 2.0F});
}
