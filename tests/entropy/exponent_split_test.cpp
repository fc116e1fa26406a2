// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/entropy/exponent_split.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// How many of the patterns break a law.
template <class T>
struct split_check {
  using split = exponent_split<T>;
  int broken = 0;

  void pattern(std::uint32_t bits) {
    std::uint32_t const exponent = split::exponent(bits);
    std::uint32_t const residual = split::residual(bits);
    bool const in_range = exponent <= split::largest_exponent && (residual >> split::residual_bits) == 0;
    broken += in_range && split::join(exponent, residual) == bits ? 0 : 1;
  }
};

template <class T>
int broken_of_all_patterns() {
  split_check<T> check;
  for (std::uint32_t bits = 0; bits < 1u << scalar_traits<T>::bits; ++bits) {
    check.pattern(bits);
  }
  return check.broken;
}

static_assert(exponent_split<bfloat16>::exponent(0x3fc0) == 127 && exponent_split<bfloat16>::residual(0x3fc0) == 0x40);
static_assert(exponent_split<bfloat16>::exponent(0xff81) == 255 && exponent_split<bfloat16>::residual(0xff81) == 0x81);
static_assert(exponent_split<float16>::exponent(0xbe01) == 15 && exponent_split<float16>::residual(0xbe01) == 0x601);
static_assert(exponent_split<float>::exponent(0xc0490fdb) == 128 &&
              exponent_split<float>::residual(0xc0490fdb) == 0xc90fdb);
static_assert(exponent_split<float8_e4m3>::exponent(0xbd) == 7 && exponent_split<float8_e4m3>::residual(0xbd) == 0xd);
static_assert(exponent_split<float8_e5m2>::exponent(0xbd) == 15 && exponent_split<float8_e5m2>::residual(0xbd) == 5);

}  // namespace

TEST_CASE("every pattern of the short formats survives the split", "[host]") {
  CHECK(broken_of_all_patterns<bfloat16>() == 0);
  CHECK(broken_of_all_patterns<float16>() == 0);
  CHECK(broken_of_all_patterns<float8_e4m3>() == 0);
  CHECK(broken_of_all_patterns<float8_e5m2>() == 0);
}

TEST_CASE("fp32 patterns survive the split: each exponent with the mantissas at its ends, and a million others",
          "[host]") {
  split_check<float> check;
  for (std::uint32_t sign_and_exponent = 0; sign_and_exponent < 512; ++sign_and_exponent) {
    for (std::uint32_t mantissa : {0u, 1u, 0x3fffffu, 0x400000u, 0x7ffffeu, 0x7fffffu}) {
      check.pattern((sign_and_exponent << 23) | mantissa);
    }
  }
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    check.pattern(testing::uniform_bits{}.value(3, i));
  }
  CHECK(check.broken == 0);
}
