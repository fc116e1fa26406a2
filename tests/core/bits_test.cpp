// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <tessera/core/bits.hpp>

#include "support/catch.hpp"

namespace {

/// Single bits, runs of ones, and random values: where counting and rotating go wrong.
template <class Unsigned>
std::vector<Unsigned> samples() {
  std::vector<Unsigned> values = {0, 1, std::numeric_limits<Unsigned>::max()};
  for (int bit = 0; bit < std::numeric_limits<Unsigned>::digits; ++bit) {
    auto const one = static_cast<Unsigned>(Unsigned{1} << bit);
    values.push_back(one);
    values.push_back(static_cast<Unsigned>(one - 1));
    values.push_back(static_cast<Unsigned>(~one));
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    values.push_back(static_cast<Unsigned>(random()));
  }
  return values;
}

}  // namespace

TEMPLATE_TEST_CASE("bits are counted as <bit> does", "[host][bits]", std::uint8_t, std::uint16_t, std::uint32_t,
                   std::uint64_t) {
  for (TestType const value : samples<TestType>()) {
    CHECK(tessera::popcount(value) == std::popcount(value));
    CHECK(tessera::count_leading_zeros(value) == std::countl_zero(value));
    CHECK(tessera::count_trailing_zeros(value) == std::countr_zero(value));
    CHECK(tessera::is_power_of_two(value) == std::has_single_bit(value));
  }
}

TEMPLATE_TEST_CASE("the logarithm of an integer rounds down or up to a whole one", "[host][bits]", std::uint8_t,
                   std::uint32_t, std::uint64_t) {
  for (TestType const value : samples<TestType>()) {
    if (value == 0) {
      continue;
    }
    int const floor = std::numeric_limits<TestType>::digits - 1 - std::countl_zero(value);
    CHECK(tessera::log2_floor(value) == floor);
    CHECK(tessera::log2_ceil(value) == floor + (std::has_single_bit(value) ? 0 : 1));
  }
}

TEST_CASE("rounding up to a multiple holds at the ends of the type", "[host][bits]") {
  STATIC_REQUIRE(tessera::align_up(0, 16) == 0);
  STATIC_REQUIRE(tessera::align_up(1, 16) == 16);
  STATIC_REQUIRE(tessera::align_up(16, 16) == 16);
  STATIC_REQUIRE(tessera::align_up(10, 3) == 12);
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  STATIC_REQUIRE(tessera::align_up(largest, 1) == largest);
  STATIC_REQUIRE(tessera::divide_up(0, 4) == 0);
  STATIC_REQUIRE(tessera::divide_up(1, 4) == 1);
  STATIC_REQUIRE(tessera::divide_up(8, 4) == 2);
  STATIC_REQUIRE(tessera::divide_up(9, 4) == 3);
  STATIC_REQUIRE(tessera::divide_up(largest, 2) == largest / 2 + 1);
  STATIC_REQUIRE(tessera::divide_up(std::numeric_limits<std::uint32_t>::max(), 2U) == 1U << 31);
}

TEST_CASE("the upper half of a product is exact", "[host][bits]") {
  STATIC_REQUIRE(tessera::multiply_high(0xffffffffU, 0xffffffffU) == 0xfffffffeU);
  STATIC_REQUIRE(tessera::multiply_high(0x80000000U, 2U) == 1U);
  STATIC_REQUIRE(tessera::multiply_high(0xffffU, 0x10000U) == 0U);
}

TEST_CASE("min, max and clamp follow < and prefer the first of equals", "[host][bits]") {
  STATIC_REQUIRE(tessera::min(3, -2) == -2);
  STATIC_REQUIRE(tessera::max(3, -2) == 3);
  STATIC_REQUIRE(tessera::clamp(-9, -8, 7) == -8);
  STATIC_REQUIRE(tessera::clamp(8, -8, 7) == 7);
  STATIC_REQUIRE(tessera::clamp(5, -8, 7) == 5);
  CHECK(std::signbit(tessera::min(-0.0F, 0.0F)));
  CHECK_FALSE(std::signbit(tessera::max(0.0F, -0.0F)));
}

TEST_CASE("bit_cast keeps every bit", "[host][bits]") {
  STATIC_REQUIRE(tessera::bit_cast<std::uint32_t>(1.0F) == 0x3f800000U);
  STATIC_REQUIRE(tessera::bit_cast<float>(0x40490fdbU) == 3.14159274F);
  CHECK(tessera::bit_cast<std::uint64_t>(-0.0) == std::uint64_t{1} << 63);
}
