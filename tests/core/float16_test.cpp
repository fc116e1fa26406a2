// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>

#include "support/catch.hpp"

namespace {

/// What the bits stand for, written out from the format: sign, 5 bits of exponent, 10 bits of mantissa.
double value_of_float16(std::uint32_t bits) {
  double const sign = bits >= 0x8000U ? -1.0 : 1.0;
  int const exponent = static_cast<int>(bits / 1024U % 32U);
  double const fraction = static_cast<double>(bits % 1024U) / 1024.0;
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

TEST_CASE("every pattern of float16 has the value of its sign and exponent and mantissa", "[host][precision]") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
    double const expected = value_of_float16(bits);
    auto const found = static_cast<double>(tessera::load(tessera::float16{static_cast<std::uint16_t>(bits)}));
    bool const same =
        std::isnan(expected) ? std::isnan(found) : found == expected && std::signbit(found) == std::signbit(expected);
    wrong += same ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("float16 compares bits alone", "[host][precision]") {
  int equal = 0;
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
    tessera::float16 const value{static_cast<std::uint16_t>(bits)};
    for (std::uint32_t const flipped : {0U, 1U, 0x0080U, 0x8000U}) {
      equal += value == tessera::float16{static_cast<std::uint16_t>(bits ^ flipped)} ? 1 : 0;
    }
  }
  CHECK(equal == 0x10000);
  STATIC_REQUIRE(tessera::float16{0x7fff} == tessera::float16{0x7fff});
  STATIC_REQUIRE(tessera::float16{0x8000} != tessera::float16{0x0000});
}

TEST_CASE("float16 holds 16 bits and does no arithmetic", "[host][precision]") {
  STATIC_REQUIRE(sizeof(tessera::float16) == 2);
  STATIC_REQUIRE(alignof(tessera::float16) == 2);
  STATIC_REQUIRE(std::is_trivial_v<tessera::float16>);
  STATIC_REQUIRE(std::is_aggregate_v<tessera::float16>);
  STATIC_REQUIRE_FALSE(can_be_summed<tessera::float16>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<tessera::float16, float>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<float, tessera::float16>);
}
