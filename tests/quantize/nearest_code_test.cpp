// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>

#include <tessera/quantize/nearest_code.hpp>

#include "support/catch.hpp"

using tessera::nearest_code;

static_assert(nearest_code(2.5F, -7, 7) == 2);
static_assert(nearest_code(3.5F, -7, 7) == 4);
static_assert(nearest_code(-2.5F, -7, 7) == -2);

TEST_CASE("the nearest code is the nearest integer, ties to even", "[host]") {
  for (float steps = -6.99F; steps < 7.0F; steps += 0.01F) {
    CAPTURE(steps);
    CHECK(nearest_code(steps, -7, 7) == static_cast<int>(std::nearbyint(steps)));
  }
}

TEST_CASE("codes saturate and NaN gives zero", "[host]") {
  float const infinite = std::numeric_limits<float>::infinity();
  CHECK(nearest_code(infinite, -127, 127) == 127);
  CHECK(nearest_code(-infinite, -127, 127) == -127);
  CHECK(nearest_code(255.4F, 0, 255) == 255);
  CHECK(nearest_code(3e9F, 0, 255) == 255);
  CHECK(nearest_code(-0.6F, 0, 255) == 0);
  CHECK(nearest_code(NAN, -127, 127) == 0);
}
