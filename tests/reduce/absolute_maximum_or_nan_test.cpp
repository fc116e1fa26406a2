// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>
#include <vector>

#include <tessera/reduce/absolute_maximum_or_nan.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"

using tessera::absolute_maximum_or_nan_reducer;

namespace {

float largest(std::vector<float> const& values) {
  absolute_maximum_or_nan_reducer const reducer;
  auto state = reducer.identity();
  for (float value : values) {
    reducer.push(state, value);
  }
  return reducer.value(state);
}

}  // namespace

TEST_CASE("the largest finite magnitude keeps the laws of a reducer", "[host]") {
  CHECK(tessera::testing::check_laws<absolute_maximum_or_nan_reducer>({1.0F, -3.0F, 0.0F, NAN, -INFINITY})
            .text()
            .empty());
}

TEST_CASE("one infinity or NaN makes the largest finite magnitude NaN", "[host]") {
  CHECK(largest({}) == 0.0F);
  CHECK(largest({-0.0F}) == 0.0F);
  CHECK(largest({1.0F, -4.0F, 3.0F}) == 4.0F);
  CHECK(largest({1.0F, -std::numeric_limits<float>::max()}) == std::numeric_limits<float>::max());
  CHECK(std::isnan(largest({1.0F, -INFINITY})));
  CHECK(std::isnan(largest({-NAN, 2.0F})));
}
