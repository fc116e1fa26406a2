// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <tessera/core/float8.hpp>
#include <tessera/core/precision.hpp>

#include "support/catch.hpp"

namespace {

using tessera::float8_e4m3;
using tessera::float8_e5m2;

/// What the bits stand for, written out from OFP8: e4m3 has no infinity, and its last pattern alone is NaN.
double value_of_float8(float8_e4m3 value) {
  double const sign = value.bits >= 0x80U ? -1.0 : 1.0;
  int const exponent = value.bits / 8 % 16;
  double const fraction = static_cast<double>(value.bits % 8) / 8.0;
  if (value.bits % 128 == 127) {
    return std::nan("");
  }
  return sign * (exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1.0 + fraction, exponent - 7));
}

/// What the bits stand for, written out from OFP8: e5m2 is the upper half of an IEEE half.
double value_of_float8(float8_e5m2 value) {
  double const sign = value.bits >= 0x80U ? -1.0 : 1.0;
  int const exponent = value.bits / 4 % 32;
  double const fraction = static_cast<double>(value.bits % 4) / 4.0;
  if (exponent == 31) {
    return fraction == 0.0 ? sign * HUGE_VAL : std::nan("");
  }
  return sign * (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0 + fraction, exponent - 15));
}

template <class T>
concept can_be_summed = requires(T a, T b) {
  a + b;
};

}  // namespace

TEMPLATE_TEST_CASE("every pattern of an 8-bit float has the value that OFP8 gives it", "[host][precision]", float8_e4m3,
                   float8_e5m2) {
  int wrong = 0;
  for (int bits = 0; bits <= 0xff; ++bits) {
    TestType const value{static_cast<std::uint8_t>(bits)};
    double const expected = value_of_float8(value);
    auto const found = static_cast<double>(tessera::load(value));
    bool const same =
        std::isnan(expected) ? std::isnan(found) : found == expected && std::signbit(found) == std::signbit(expected);
    wrong += same ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("8-bit floats compare bits alone", "[host][precision]", float8_e4m3, float8_e5m2) {
  int wrong = 0;
  for (int a = 0; a <= 0xff; ++a) {
    for (int b = 0; b <= 0xff; ++b) {
      bool const found = TestType{static_cast<std::uint8_t>(a)} == TestType{static_cast<std::uint8_t>(b)};
      wrong += found == (a == b) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("8-bit floats hold 8 bits and do no arithmetic", "[host][precision]", float8_e4m3, float8_e5m2) {
  STATIC_REQUIRE(sizeof(TestType) == 1);
  STATIC_REQUIRE(std::is_trivial_v<TestType>);
  STATIC_REQUIRE(std::is_aggregate_v<TestType>);
  STATIC_REQUIRE_FALSE(can_be_summed<TestType>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<TestType, float>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<float, TestType>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<float8_e4m3, float8_e5m2>);
}
