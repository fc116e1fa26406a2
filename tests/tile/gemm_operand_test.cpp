// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/gemm_operand.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Whether every pattern widens to the number that it stores.
template <class T>
int wrong_widened() {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < (1U << scalar_traits<T>::bits); ++bits) {
    auto const value = from_bits<T>(static_cast<typename scalar_traits<T>::bits_type>(bits));
    float const wide = gemm_operand<T>::widen(value);
    wrong += bit_cast<std::uint32_t>(wide) == bit_cast<std::uint32_t>(load(value)) ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("small floats widen exactly and their products fit a float", "[host]") {
  CHECK(wrong_widened<bfloat16>() == 0);
  CHECK(wrong_widened<float16>() == 0);
  CHECK(wrong_widened<float8_e4m3>() == 0);
  CHECK(wrong_widened<float8_e5m2>() == 0);
  int wrong = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    auto const a = from_bits<float16>(static_cast<std::uint16_t>(testing::hash(1, i) & 0xfbff));
    auto const b = from_bits<float16>(static_cast<std::uint16_t>(testing::hash(2, i) & 0xfbff));
    float const wide_a = gemm_operand<float16>::widen(a);
    float const wide_b = gemm_operand<float16>::widen(b);
    double const exact = static_cast<double>(wide_a) * static_cast<double>(wide_b);
    wrong += static_cast<double>(gemm_operand<float16>::multiply_add(wide_a, wide_b, 0.0F)) == exact ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("products of tf32 see the upper 19 bits of floats, cut and not rounded", "[host]") {
  using operand = gemm_operand<tf32>;
  STATIC_REQUIRE(std::is_same_v<operand::value_type, float>);
  CHECK(operand::widen(1.0F + 0x1p-10F) == 1.0F + 0x1p-10F);
  CHECK(operand::widen(1.0F + 0x1.fffp-11F) == 1.0F);
  CHECK(operand::widen(-1.0F - 0x1.fffp-11F) == -1.0F);
  CHECK(operand::widen(std::numeric_limits<float>::infinity()) == std::numeric_limits<float>::infinity());
  int wrong = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    auto const value = bit_cast<float>(static_cast<std::uint32_t>(testing::hash(3, i)));
    if (std::isfinite(value)) {
      double const wide = static_cast<double>(operand::widen(value));
      double const lost = std::fabs(static_cast<double>(value)) - std::fabs(wide);
      double const unit = std::ldexp(1.0, std::max(std::ilogb(value), -126) - 10);
      double const steps = wide / unit;
      wrong += lost >= 0 && lost < unit && steps == std::trunc(steps) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("products of 8-bit integers are exact and their sums wrap", "[host]") {
  using operand = gemm_operand<std::int8_t>;
  STATIC_REQUIRE(std::is_same_v<operand::sum_type, std::int32_t>);
  int wrong = 0;
  for (int a = -128; a < 128; ++a) {
    for (int b = -128; b < 128; ++b) {
      std::int32_t const found = operand::multiply_add(operand::widen(static_cast<std::int8_t>(a)),
                                                       operand::widen(static_cast<std::int8_t>(b)), 1000000);
      wrong += found == 1000000 + a * b ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  constexpr std::int32_t largest = std::numeric_limits<std::int32_t>::max();
  STATIC_REQUIRE(operand::multiply_add(1, 1, largest) == std::numeric_limits<std::int32_t>::min());
  STATIC_REQUIRE(operand::multiply_add(-1, 1, std::numeric_limits<std::int32_t>::min()) == largest);
}

TEST_CASE("a product of two pairs of 4-bit integers is the sum of two products", "[host]") {
  using operand = gemm_operand<int4x2>;
  CHECK(operand::widen(pack_int4(-8, 7)).first == -8);
  CHECK(operand::widen(pack_int4(-8, 7)).second == 7);
  int wrong = 0;
  for (int a = -8; a < 8; ++a) {
    for (int b = -8; b < 8; ++b) {
      for (int c = -8; c < 8; ++c) {
        for (int d = -8; d < 8; ++d) {
          std::int32_t const found =
              operand::multiply_add(operand::widen(pack_int4(a, b)), operand::widen(pack_int4(c, d)), -77);
          wrong += found == a * c + b * d - 77 ? 0 : 1;
        }
      }
    }
  }
  CHECK(wrong == 0);
}
