// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>

#include <tessera/core/trigonometry.hpp>

#include "support/catch.hpp"

using tessera::pi;
using tessera::upper_arc_tangent;
using tessera::upper_sine;

TEST_CASE("sines are exact to 1e-15 from 0 to pi", "[host]") {
  double most = 0;
  for (int i = 0; i <= 100000; ++i) {
    double const angle = i == 100000 ? pi : pi * i / 100000;
    most = std::fmax(most, std::fabs(upper_sine(angle) - std::sin(angle)));
  }
  CHECK(most < 1e-15);
  for (double angle : {1e-300, 1e-12, 1e-3}) {
    CHECK(std::fabs(upper_sine(angle) - std::sin(angle)) <= 4e-16 * angle);
  }
}

TEST_CASE("arc tangents are exact to 1e-15 from 0 to pi", "[host]") {
  double most = 0;
  for (int i = 0; i <= 100000; ++i) {
    double const angle = pi * i / 100000;
    double const y = std::fabs(std::sin(angle));
    double const x = std::cos(angle);
    most = std::fmax(most, std::fabs(upper_arc_tangent(y * 3e7, x * 3e7) - std::atan2(y, x)));
  }
  CHECK(most < 1e-15);
}

TEST_CASE("arc tangents know the axes", "[host]") {
  CHECK(upper_arc_tangent(0, 0) == 0);
  CHECK(upper_arc_tangent(0, 5) == 0);
  CHECK(upper_arc_tangent(0, -5) == pi);
  CHECK(upper_arc_tangent(5, 0) == pi / 2);
  CHECK(upper_arc_tangent(1e-20, 1) == 1e-20);
  CHECK(std::isnan(upper_arc_tangent(NAN, 1)));
  CHECK(std::isnan(upper_arc_tangent(1, NAN)));
}
