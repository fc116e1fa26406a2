// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>

#include "support/catch.hpp"

namespace {

/// What the bits stand for, written out from the format: sign, 8 bits of exponent, 7 bits of mantissa.
double value_of_bfloat16(std::uint32_t bits) {
  double const sign = bits >= 0x8000U ? -1.0 : 1.0;
  int const exponent = static_cast<int>(bits / 128U % 256U);
  double const fraction = static_cast<double>(bits % 128U) / 128.0;
  if (exponent == 255) {
    return fraction == 0.0 ? sign * HUGE_VAL : std::nan("");
  }
  return sign * (exponent == 0 ? std::ldexp(fraction, -126) : std::ldexp(1.0 + fraction, exponent - 127));
}

template <class T>
concept can_be_summed = requires(T a, T b) {
  a + b;
};

}  // namespace

TEST_CASE("every pattern of bfloat16 has the value of its sign and exponent and mantissa", "[host][precision]") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
    double const expected = value_of_bfloat16(bits);
    auto const found = static_cast<double>(tessera::load(tessera::bfloat16{static_cast<std::uint16_t>(bits)}));
    bool const same =
        std::isnan(expected) ? std::isnan(found) : found == expected && std::signbit(found) == std::signbit(expected);
    wrong += same ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("bfloat16 compares bits alone", "[host][precision]") {
  int equal = 0;
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
    tessera::bfloat16 const value{static_cast<std::uint16_t>(bits)};
    for (std::uint32_t const flipped : {0U, 1U, 0x0080U, 0x8000U}) {
      equal += value == tessera::bfloat16{static_cast<std::uint16_t>(bits ^ flipped)} ? 1 : 0;
    }
  }
  CHECK(equal == 0x10000);
  STATIC_REQUIRE(tessera::bfloat16{0x7fff} == tessera::bfloat16{0x7fff});
  STATIC_REQUIRE(tessera::bfloat16{0x8000} != tessera::bfloat16{0x0000});
}

TEST_CASE("bfloat16 holds 16 bits and does no arithmetic", "[host][precision]") {
  STATIC_REQUIRE(sizeof(tessera::bfloat16) == 2);
  STATIC_REQUIRE(alignof(tessera::bfloat16) == 2);
  STATIC_REQUIRE(std::is_trivial_v<tessera::bfloat16>);
  STATIC_REQUIRE(std::is_aggregate_v<tessera::bfloat16>);
  STATIC_REQUIRE_FALSE(can_be_summed<tessera::bfloat16>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<tessera::bfloat16, float>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<float, tessera::bfloat16>);
}
