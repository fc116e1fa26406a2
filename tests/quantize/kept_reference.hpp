// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What keep_mantissa should give, from real numbers: exact integer quotients and long double, where the header has bit
/// tricks.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <tessera/core/precision.hpp>
#include <tessera/quantize/keep_mantissa.hpp>

namespace tessera_test {

/// A finite magnitude as significand * 2^exponent.
struct magnitude {
  std::uint64_t significand;
  int exponent;
};

template <class T>
struct format {
  using traits = tessera::scalar_traits<T>;
  static constexpr int mantissa_bits = traits::mantissa_bits;
  static constexpr int largest_exponent = (1 << traits::exponent_bits) - 1;
  static constexpr int smallest_normal = 1 - traits::exponent_bias;  ///< as a power of two
  static constexpr int largest_normal = largest_exponent - 1 - traits::exponent_bias;

  static int exponent_of(std::uint32_t bits) {
    return static_cast<int>((bits >> mantissa_bits) & static_cast<std::uint32_t>(largest_exponent));
  }
  static bool is_negative(std::uint32_t bits) { return (bits >> (traits::bits - 1)) != 0; }
  static std::uint32_t mantissa_of(std::uint32_t bits) { return bits & ((1u << mantissa_bits) - 1); }
  static bool is_special(std::uint32_t bits) { return exponent_of(bits) == largest_exponent; }
  static bool is_nan(std::uint32_t bits) { return is_special(bits) && mantissa_of(bits) != 0; }

  static magnitude magnitude_of(std::uint32_t bits) {
    int const exponent = exponent_of(bits);
    std::uint64_t const implicit = exponent > 0 ? std::uint64_t{1} << mantissa_bits : 0;
    return {implicit | mantissa_of(bits), (exponent > 0 ? exponent : 1) - traits::exponent_bias - mantissa_bits};
  }
  static long double value_of(std::uint32_t bits) {
    magnitude const m = magnitude_of(bits);
    long double const value = std::ldexp(static_cast<long double>(m.significand), m.exponent);
    return is_negative(bits) ? -value : value;
  }
};

/// The magnitude divided by (256 + normalizer) / 256, rounded to K mantissa bits, as a real number.
template <class T, int K, tessera::mantissa_rounding Rounding>
long double kept_magnitude(std::uint32_t bits, std::uint32_t normalizer, std::uint32_t random) {
  using f = format<T>;
  magnitude const given = f::magnitude_of(bits);
  if (given.significand == 0) {
    return 0;
  }
  // quotient = significand * 256 / (256 + normalizer) * 2^exponent; its leading power of two, by comparing integers.
  std::uint64_t const over = given.significand * 256;
  std::uint64_t const under = 256 + normalizer;
  int leading = 0;
  while ((over >> leading) / under >= 2) {
    ++leading;
  }
  while (leading <= 0 && (over << -leading) < under) {
    --leading;
  }
  int power = leading + given.exponent;
  power = power < f::smallest_normal ? f::smallest_normal : power;
  // In units of 2^(power - K).
  int const shift = given.exponent - power + K;
  std::uint64_t const numerator = shift > 0 ? over << shift : over;
  std::uint64_t const denominator = shift < 0 ? under << -shift : under;
  std::uint64_t units = numerator / denominator;
  std::uint64_t const rest = numerator % denominator;
  // Of two neighbours that with the even pattern; where no mantissa bit is kept, that is the even exponent.
  int const before = power - f::smallest_normal;
  bool const is_odd = ((static_cast<std::uint64_t>(before) << K) + units) % 2 == 1;
  switch (Rounding) {
    case tessera::mantissa_rounding::half_away:
      units += 2 * rest >= denominator ? 1 : 0;
      break;
    case tessera::mantissa_rounding::half_even:
      units += 2 * rest > denominator || (2 * rest == denominator && is_odd) ? 1 : 0;
      break;
    case tessera::mantissa_rounding::stochastic: {
      long double const fraction = static_cast<long double>(rest) / static_cast<long double>(denominator);
      units += fraction + std::ldexp(static_cast<long double>(random), -32) >= 1 ? 1 : 0;
      break;
    }
    default:
      break;
  }
  long double const largest = std::ldexp(2 - std::ldexp(1.0L, -K), f::largest_normal);
  long double const kept = std::ldexp(static_cast<long double>(units), power - K);
  return kept < largest ? kept : largest;
}

/// A real magnitude in format T: rounded to the nearest, ties to even, finite.
template <class T>
std::uint32_t nearest_bits(long double value) {
  using f = format<T>;
  if (value == 0) {
    return 0;
  }
  int power = std::ilogb(value);
  power = power < f::smallest_normal ? f::smallest_normal : power;
  long double const units = std::nearbyint(std::ldexp(value, f::mantissa_bits - power));
  // units counts from the exponent's first value, so a carry into the next exponent comes by itself.
  auto const within = static_cast<std::uint64_t>(units);
  std::uint64_t const implicit = std::uint64_t{1} << f::mantissa_bits;
  auto const biased = static_cast<std::uint64_t>(power + f::traits::exponent_bias);
  std::uint64_t const bits = within < implicit ? within : (biased << f::mantissa_bits) + (within - implicit);
  std::uint64_t const infinity = static_cast<std::uint64_t>(f::largest_exponent) << f::mantissa_bits;
  return static_cast<std::uint32_t>(bits < infinity ? bits : infinity - 1);
}

}  // namespace tessera_test
