// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/merge/two_lengths.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("lengths saturate at the largest float, and those below the smallest normal one are zero", "[host]") {
  float const largest = std::numeric_limits<float>::max();
  float const smallest = std::numeric_limits<float>::min();
  CHECK(length_of(0.0) == 0.0F);
  CHECK(length_of(9.0) == 3.0F);
  CHECK(length_of(double{smallest} * double{smallest}) == smallest);
  CHECK(length_of(0.9 * double{smallest} * double{smallest}) == 0.0F);
  CHECK(length_of(double{largest} * double{largest}) == largest);
  CHECK(length_of(8.0 * double{largest} * double{largest}) == largest);
  CHECK(length_of(INFINITY) == INFINITY);
  CHECK(std::isnan(length_of(NAN)));
}

TEST_CASE("the angle between two vectors is within 2.5e-7 wherever it lies", "[host]") {
  double const pi = 3.14159265358979323846;
  for (double const angle : {0.0, 1e-6, 1e-3, 0.5, pi / 2, 3.0, pi - 1e-3, pi - 1e-6, pi}) {
    for (double const length : {1e-15, 1.0, 1e15}) {
      double const other = 7.0;
      pair_products const measured{length * length, other * other, length * other * std::cos(angle)};
      CAPTURE(angle, length);
      // Near 0 and pi products of vectors, rounded to double, know an angle no better than to 1e-8.
      CHECK(angle_between(measured) == Approx(angle).margin(2.5e-7));
    }
  }
}

TEST_CASE("a vector of zeros has no angle with any other, and one that is not finite has NaN", "[host]") {
  CHECK(angle_between({0.0, 4.0, 0.0}) == 0.0F);
  CHECK(angle_between({4.0, 0.0, 0.0}) == 0.0F);
  CHECK(std::isnan(angle_between({INFINITY, 4.0, 1.0})));
  CHECK(std::isnan(angle_between({4.0, NAN, 1.0})));
}

TEST_CASE("two lengths are kept in their storage type, each for its side", "[host]") {
  auto const kept = two_lengths<bfloat16>::of(1.0F + 0x1p-9F, 3.0F);
  CHECK(kept.of_side(side::first) == 1.0F);
  CHECK(kept.of_side(side::second) == 3.0F);
}
