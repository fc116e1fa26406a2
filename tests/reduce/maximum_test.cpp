// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>

#include <tessera/reduce/maximum.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"

using tessera::maximum_reducer;
using tessera::testing::check_laws;

TEST_CASE("largest values keep the laws exactly", "[host]") {
  CHECK(check_laws<maximum_reducer<float>>({3.0F, -4.0F, 0.0F, -1e-40F, -INFINITY}).text().empty());
  CHECK(check_laws<maximum_reducer<float>>({NAN, -4.0F, NAN, NAN, 5.0F}).text().empty());
  CHECK(check_laws<maximum_reducer<double>>({-3.0, -4.0}).text().empty());
  CHECK(check_laws<maximum_reducer<std::int32_t>>({-3, INT32_MIN, INT32_MAX, 0}).text().empty());
}

TEST_CASE("the largest value begins at minus infinity and passes over NaN", "[host]") {
  maximum_reducer<float> const reducer;
  float largest = reducer.identity();
  CHECK(largest == -INFINITY);
  for (float const value : {NAN, -4.0F, NAN, -5.0F}) {
    reducer.push(largest, value);
  }
  CHECK(largest == -4.0F);
}
