// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/precision.hpp>

#include "support/catch.hpp"

namespace {

using tessera::bfloat16;
using tessera::bit_cast;
using tessera::float16;
using tessera::float8_e4m3;
using tessera::float8_e5m2;
using tessera::load;
using tessera::scalar_traits;
using tessera::store;

constexpr float huge = std::numeric_limits<float>::infinity();

template <class T>
constexpr std::uint32_t sign_bit = 1U << (scalar_traits<T>::bits - 1);

template <class T>
constexpr bool saturates = scalar_traits<T>::bits == 8;

/// The exact value of a finite pattern without sign, straight from the definition of the format.
template <class T>
double exact_value(std::uint32_t pattern) {
  using traits = scalar_traits<T>;
  int const exponent = static_cast<int>(pattern >> traits::mantissa_bits);
  double const fraction = pattern & ((1U << traits::mantissa_bits) - 1U);
  double const one = 1U << traits::mantissa_bits;
  int const scale = std::max(exponent, 1) - traits::exponent_bias - traits::mantissa_bits;
  return std::ldexp(exponent == 0 ? fraction : one + fraction, scale);
}

/// All finite values without sign, in order of their patterns, and the one that would come next.
template <class T>
std::vector<double> finite_values() {
  std::vector<double> values;
  for (std::uint32_t pattern = 0; pattern <= scalar_traits<T>::largest_bits + 1U; ++pattern) {
    values.push_back(exact_value<T>(pattern));
  }
  return values;
}

/// Rounds by searching the table of all values: slow and hard to get wrong.
template <class T>
std::uint32_t rounded(std::vector<double> const& values, float value) {
  using traits = scalar_traits<T>;
  if (std::isnan(value)) {
    return traits::nan_bits;
  }
  std::uint32_t const sign = std::signbit(value) ? sign_bit<T> : 0U;
  std::uint32_t const overflow = saturates<T> ? traits::largest_bits : traits::largest_bits + 1U;
  double const magnitude = std::fabs(static_cast<double>(value));
  auto const above = std::upper_bound(values.begin(), values.end(), magnitude);
  if (above == values.end()) {
    return sign | overflow;
  }
  auto const index = static_cast<std::uint32_t>(above - values.begin());
  double const middle = (values[index - 1] + values[index]) / 2;  // exact: a double holds one bit more with ease
  bool const up = magnitude > middle || (magnitude == middle && index % 2 == 0);
  return sign | std::min(up ? index : index - 1, overflow);
}

/// Counts what differs and keeps the first, so that a million comparisons are one assertion.
struct differences {
  std::uint64_t count = 0;
  std::uint32_t input = 0;
  std::uint64_t got = 0;
  std::uint64_t wanted = 0;

  void compare(std::uint32_t from, std::uint64_t is, std::uint64_t should_be) {
    if (is != should_be && count++ == 0) {
      input = from;
      got = is;
      wanted = should_be;
    }
  }

  void report() const {
    INFO("first input " << std::hex << input << ": got " << got << ", wanted " << wanted);
    CHECK(count == 0);
  }
};

/// Floats at and beside every value and every midpoint of the format, with both signs.
template <class T>
std::vector<float> edges(std::vector<double> const& values) {
  std::vector<float> result;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    for (double const point : {values[i], (values[i] + values[i + 1]) / 2}) {
      auto const exact = static_cast<float>(point);
      float const beside[] = {exact, std::nextafter(exact, -1.0F), std::nextafter(exact, huge),
                              std::nextafter(std::nextafter(exact, huge), huge)};
      for (float const value : beside) {
        result.push_back(value);
        result.push_back(-value);
      }
    }
  }
  return result;
}

template <class T>
void check_store(std::vector<float> const& inputs, std::vector<double> const& values) {
  differences found;
  for (float const input : inputs) {
    found.compare(bit_cast<std::uint32_t>(input), store<T>(input).bits, rounded<T>(values, input));
  }
  found.report();
}

}  // namespace

TEMPLATE_TEST_CASE("load gives the exact value of every pattern", "[host][precision]", bfloat16, float16, float8_e4m3,
                   float8_e5m2) {
  using traits = scalar_traits<TestType>;
  differences found;
  for (std::uint32_t pattern = 0; pattern < 2 * sign_bit<TestType>; ++pattern) {
    std::uint32_t const magnitude = pattern & ~sign_bit<TestType>;
    float const value = load(TestType{static_cast<typename traits::bits_type>(pattern)});
    std::uint32_t const bits = bit_cast<std::uint32_t>(value);
    double const sign = magnitude == pattern ? 1.0 : -1.0;
    if (magnitude <= traits::largest_bits) {
      auto const wanted = static_cast<float>(sign * exact_value<TestType>(magnitude));
      found.compare(pattern, bits, bit_cast<std::uint32_t>(wanted));
    } else if (traits::has_infinity && magnitude == traits::largest_bits + 1U) {
      found.compare(pattern, bits, sign > 0 ? 0x7f800000U : 0xff800000U);
    } else {
      found.compare(pattern, bits, std::is_same_v<TestType, bfloat16> ? pattern << 16 : 0x7fffffffU);
    }
  }
  found.report();
}

TEMPLATE_TEST_CASE("store gives back every finite pattern that was loaded, and makes one NaN of all",
                   "[host][precision]", bfloat16, float16, float8_e4m3, float8_e5m2) {
  using traits = scalar_traits<TestType>;
  differences found;
  for (std::uint32_t pattern = 0; pattern < 2 * sign_bit<TestType>; ++pattern) {
    std::uint32_t const magnitude = pattern & ~sign_bit<TestType>;
    std::uint32_t wanted = pattern;
    if (magnitude > traits::largest_bits) {
      bool const is_infinity = traits::has_infinity && magnitude == traits::largest_bits + 1U;
      wanted = traits::nan_bits;
      if (is_infinity) {
        wanted = saturates<TestType> ? pattern - 1U : pattern;
      }
    }
    auto const value = tessera::from_bits<TestType>(static_cast<typename traits::bits_type>(pattern));
    found.compare(pattern, tessera::to_bits(store<TestType>(load(value))), wanted);
  }
  found.report();
}

TEMPLATE_TEST_CASE("store rounds to nearest even at and beside every value and midpoint", "[host][precision]", bfloat16,
                   float16, float8_e4m3, float8_e5m2) {
  auto const values = finite_values<TestType>();
  check_store<TestType>(edges<TestType>(values), values);
}

TEMPLATE_TEST_CASE("store rounds random floats of all magnitudes to nearest even", "[host][precision]", bfloat16,
                   float16, float8_e4m3, float8_e5m2) {
  auto const values = finite_values<TestType>();
  std::mt19937 random(7);
  std::vector<float> inputs;
  for (int i = 0; i < 300000; ++i) {
    inputs.push_back(bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  check_store<TestType>(inputs, values);
}

TEMPLATE_TEST_CASE("store takes subnormal floats, infinities and NaNs", "[host][precision]", bfloat16, float16,
                   float8_e4m3, float8_e5m2) {
  auto const values = finite_values<TestType>();
  std::vector<float> inputs;
  for (std::uint32_t const magnitude : {0x00000000U, 0x00000001U, 0x00007fffU, 0x00008000U, 0x00008001U, 0x007fffffU,
                                        0x00800000U, 0x7f7fffffU, 0x7f800000U, 0x7f800001U, 0x7fc00000U, 0x7fffffffU}) {
    inputs.push_back(bit_cast<float>(magnitude));
    inputs.push_back(bit_cast<float>(magnitude | 0x80000000U));
  }
  check_store<TestType>(inputs, values);
}

TEST_CASE("the widths of a format are what its storage holds", "[host][precision]") {
  auto const check = [](auto value) {
    using traits = scalar_traits<decltype(value)>;
    STATIC_REQUIRE(traits::bits == 8 * sizeof(value));
    STATIC_REQUIRE(sizeof(typename traits::bits_type) == sizeof(value));
    STATIC_REQUIRE(1 + traits::exponent_bits + traits::mantissa_bits == traits::bits);
    STATIC_REQUIRE(traits::exponent_bias == (1 << (traits::exponent_bits - 1)) - 1);
    STATIC_REQUIRE(std::is_trivial_v<decltype(value)>);
  };
  check(float{});
  check(bfloat16{});
  check(float16{});
  check(float8_e4m3{});
  check(float8_e5m2{});
}

TEST_CASE("the largest values are those that the formats' standards name", "[host][precision]") {
  STATIC_REQUIRE(load(float16{scalar_traits<float16>::largest_bits}) == 65504.0F);
  STATIC_REQUIRE(load(float8_e4m3{scalar_traits<float8_e4m3>::largest_bits}) == 448.0F);
  STATIC_REQUIRE(load(float8_e5m2{scalar_traits<float8_e5m2>::largest_bits}) == 57344.0F);
  STATIC_REQUIRE(load(bfloat16{scalar_traits<bfloat16>::largest_bits}) == 0x1.fep127F);
  STATIC_REQUIRE(load(bit_cast<float>(scalar_traits<float>::largest_bits)) == std::numeric_limits<float>::max());
  STATIC_REQUIRE(load(float8_e4m3{0x01}) == 0x1p-9F);
  STATIC_REQUIRE(load(float8_e5m2{0x01}) == 0x1p-16F);
  STATIC_REQUIRE(load(float16{0x0001}) == 0x1p-24F);
}

TEST_CASE("the 8-bit formats saturate and the 16-bit ones overflow to infinity", "[host][precision]") {
  STATIC_REQUIRE(store<float8_e4m3>(1.0e6F).bits == 0x7e);
  STATIC_REQUIRE(store<float8_e4m3>(-huge).bits == 0xfe);
  STATIC_REQUIRE(store<float8_e5m2>(huge).bits == 0x7b);
  STATIC_REQUIRE(store<float16>(65519.9F).bits == 0x7bff);
  STATIC_REQUIRE(store<float16>(65520.0F).bits == 0x7c00);
  STATIC_REQUIRE(store<bfloat16>(-std::numeric_limits<float>::max()).bits == 0xff80);
}

TEST_CASE("a float passes through load and store untouched, a NaN with its payload", "[host][precision]") {
  for (std::uint32_t const pattern : {0x00000001U, 0x80000000U, 0x3f800001U, 0xffc12345U}) {
    float const value = tessera::from_bits<float>(pattern);
    CHECK(tessera::to_bits(store<float>(load(value))) == pattern);
  }
}

TEST_CASE("formats are named as in files and messages", "[host][precision]") {
  CHECK(std::string(scalar_traits<float>::name()) == "fp32");
  CHECK(std::string(scalar_traits<bfloat16>::name()) == "bf16");
  CHECK(std::string(scalar_traits<float16>::name()) == "fp16");
  CHECK(std::string(scalar_traits<float8_e4m3>::name()) == "fp8_e4m3");
  CHECK(std::string(scalar_traits<float8_e5m2>::name()) == "fp8_e5m2");
}
