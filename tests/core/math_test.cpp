// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>
#include <random>

#include <tessera/core/math.hpp>

#include "support/catch.hpp"

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float tiny = std::numeric_limits<float>::denorm_min();

/// As in a user's file that says so.
namespace user {
using namespace tessera;
float all_of(float x) {
  return exp(x) + exp2(x) + log(x) + log2(x) + sqrt(x);
}
}  // namespace user

}  // namespace

TEST_CASE("a NaN gives way to a number in minimum and maximum, and two of them give one", "[host][math]") {
  STATIC_REQUIRE(tessera::minimum(not_a_number, 2.0F) == 2.0F);
  STATIC_REQUIRE(tessera::minimum(2.0F, not_a_number) == 2.0F);
  STATIC_REQUIRE(tessera::maximum(not_a_number, -2.0F) == -2.0F);
  STATIC_REQUIRE(tessera::maximum(-2.0F, not_a_number) == -2.0F);
  STATIC_REQUIRE(tessera::is_nan(tessera::maximum(not_a_number, not_a_number)));
  STATIC_REQUIRE(tessera::minimum(-tessera::infinity, 1.0F) == -tessera::infinity);
  float volatile unknown = not_a_number;  // at run time too
  CHECK(tessera::minimum(unknown, 2.0F) == 2.0F);
  CHECK(tessera::maximum(2.0F, unknown) == 2.0F);
  CHECK(std::isnan(tessera::minimum(unknown, unknown)));
  CHECK(tessera::maximum(unknown, -tessera::infinity) == -tessera::infinity);
}

TEST_CASE("floats are classified by their bits", "[host][math]") {
  STATIC_REQUIRE(tessera::is_nan(not_a_number));
  STATIC_REQUIRE(tessera::is_nan(-not_a_number));
  STATIC_REQUIRE_FALSE(tessera::is_nan(tessera::infinity));
  STATIC_REQUIRE_FALSE(tessera::is_finite(-tessera::infinity));
  STATIC_REQUIRE_FALSE(tessera::is_finite(not_a_number));
  STATIC_REQUIRE(tessera::is_finite(std::numeric_limits<float>::max()));
  STATIC_REQUIRE(tessera::is_finite(-tiny));
}

TEST_CASE("absolute drops the sign of anything", "[host][math]") {
  STATIC_REQUIRE(tessera::absolute(-3.5F) == 3.5F);
  STATIC_REQUIRE(tessera::absolute(-tessera::infinity) == tessera::infinity);
  CHECK_FALSE(std::signbit(tessera::absolute(-0.0F)));
  CHECK_FALSE(std::signbit(tessera::absolute(std::copysign(not_a_number, -1.0F))));
}

TEST_CASE("halves round to the even neighbour", "[host][math]") {
  STATIC_REQUIRE(tessera::round_to_even(0.5F) == 0.0F);
  STATIC_REQUIRE(tessera::round_to_even(1.5F) == 2.0F);
  STATIC_REQUIRE(tessera::round_to_even(2.5F) == 2.0F);
  STATIC_REQUIRE(tessera::round_to_even(-3.5F) == -4.0F);
  STATIC_REQUIRE(tessera::round_to_even(8388607.5F) == 8388608.0F);
  STATIC_REQUIRE(tessera::round_to_even(8388609.0F) == 8388609.0F);
  STATIC_REQUIRE(tessera::round_to_even(-tessera::infinity) == -tessera::infinity);
  constexpr float small = tessera::round_to_even(-0.25F);
  CHECK(std::signbit(small));
  float volatile unknown = 2.5F;
  CHECK(tessera::round_to_even(unknown) == 2.0F);
  CHECK(std::signbit(tessera::round_to_even(-0.25F * (unknown / 2.5F))));
}

TEST_CASE("multiply_add rounds once", "[host][math]") {
  float volatile a = 1.0F + 0x1p-12F;
  CHECK(tessera::multiply_add(a, a, -(1.0F + 0x1p-11F)) == 0x1p-24F);  // two roundings lose the last term
}

TEST_CASE("the transcendental functions stay within two units in the last place", "[host][math]") {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> exponents(-80.0F, 80.0F);
  auto const close = [](float got, double exact) {
    return std::fabs(static_cast<double>(got) - exact) <= 0x1p-22 * std::fabs(exact) + 0x1p-126;
  };
  for (int i = 0; i < 2000; ++i) {
    float const x = exponents(random);
    float const positive = std::ldexp(1.0F + std::fabs(x) / 100.0F, static_cast<int>(x));
    CHECK(close(tessera::exp(x), std::exp(static_cast<double>(x))));
    CHECK(close(tessera::exp2(x), std::exp2(static_cast<double>(x))));
    CHECK(close(tessera::log(positive), std::log(static_cast<double>(positive))));
    CHECK(close(tessera::log2(positive), std::log2(static_cast<double>(positive))));
    CHECK(close(tessera::sqrt(positive), std::sqrt(static_cast<double>(positive))));
  }
  CHECK(tessera::exp2(-tessera::infinity) == 0.0F);
  CHECK(tessera::log(0.0F) == -tessera::infinity);
  CHECK(tessera::is_nan(tessera::log2(-1.0F)));
}

TEST_CASE("functions of <math.h> and those of the same names are not ambiguous", "[host][math]") {
  CHECK(user::all_of(2.0F) == Approx(tessera::exp(2.0F) + 4.0F + tessera::log(2.0F) + 1.0F + tessera::sqrt(2.0F)));
}
