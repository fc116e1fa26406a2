// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A user's own Scalar of 8 bits, for programs of any executor: a sign, and an exponent in steps of a quarter.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>

namespace tessera_test {

/// +-2^((bits & 127) / 4 - 16) for (bits & 127) > 0; zero else.
struct log_scalar {
  std::uint8_t bits;

  friend constexpr bool operator==(log_scalar, log_scalar) = default;
};

}  // namespace tessera_test

namespace tessera {

template <>
struct scalar_traits<tessera_test::log_scalar> {
  using bits_type = std::uint8_t;
  using compute_type = float;
  static constexpr int bits = 8;
  static constexpr int exponent_bits = 5;
  static constexpr int mantissa_bits = 2;
  static constexpr int exponent_bias = 16;
  static constexpr bool has_infinity = false;
  static constexpr char const* name() { return "log8"; }

  TESSERA_FN static constexpr bits_type to_bits(tessera_test::log_scalar value) { return value.bits; }
  TESSERA_FN static constexpr tessera_test::log_scalar from_bits(bits_type pattern) { return {pattern}; }
  TESSERA_FN static constexpr float load(tessera_test::log_scalar value) {
    constexpr float steps[4] = {1.0F, 1.18920711F, 1.41421354F, 1.68179286F};
    int const exponent = value.bits & 127;
    if (exponent == 0) {
      return 0.0F;
    }
    auto const power = static_cast<std::uint32_t>(exponent / 4 - 16 + 127) << 23;
    float const magnitude = bit_cast<float>(power) * steps[exponent % 4];
    return (value.bits & 128) != 0 ? -magnitude : magnitude;
  }
  TESSERA_FN static constexpr std::int64_t absolute_difference(std::int64_t a, std::int64_t b) {
    return a < b ? b - a : a - b;
  }
  TESSERA_FN static constexpr tessera_test::log_scalar store(float value) {
    float const magnitude = min(absolute(value), load({127}));
    // By distances of patterns, whose arithmetic no compiler contracts: all executors have the same codes.
    auto const distance = [&](int candidate) {
      auto const found =
          static_cast<std::int64_t>(bit_cast<std::uint32_t>(load({static_cast<std::uint8_t>(candidate)})));
      return absolute_difference(found, static_cast<std::int64_t>(bit_cast<std::uint32_t>(magnitude)));
    };
    int best = 0;
    for (int candidate = 1; candidate < 128; ++candidate) {
      best = distance(candidate) < distance(best) ? candidate : best;
    }
    return {static_cast<std::uint8_t>(value < 0.0F ? best | 128 : best)};
  }
};

}  // namespace tessera
