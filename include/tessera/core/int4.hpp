// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Two 4-bit integers in one byte: the unit in which 4-bit codes lie in memory, the first one in the low nibble.
///
///     tessera::int4x2 pair = tessera::pack_int4(-8, 7);   // bits 0x78
///     int first  = tessera::low(pair);                    // -8
///     int second = tessera::high(pair);                   //  7
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Two signed values in -8..7, in two's complement.
struct int4x2 {
  static constexpr int smallest = -8;  ///< of either value
  static constexpr int largest = 7;    ///< of either value

  std::uint8_t bits;  ///< the first value in the low four

  friend constexpr bool operator==(int4x2, int4x2) = default;
};

/// Two unsigned values in 0..15.
struct uint4x2 {
  static constexpr int smallest = 0;  ///< of either value
  static constexpr int largest = 15;  ///< of either value

  std::uint8_t bits;  ///< the first value in the low four

  friend constexpr bool operator==(uint4x2, uint4x2) = default;
};

/// Keeps the low four bits of both; a caller that may be out of range clamps to smallest..largest first.
TESSERA_FN constexpr int4x2 pack_int4(int low, int high) {
  return {static_cast<std::uint8_t>((low & 15) | ((high & 15) << 4))};
}

/// Keeps the low four bits of both, as for int4x2.
TESSERA_FN constexpr uint4x2 pack_uint4(int low, int high) {
  return {static_cast<std::uint8_t>((low & 15) | ((high & 15) << 4))};
}

/// The first value of the pair.
TESSERA_FN constexpr int low(int4x2 pair) {
  return ((pair.bits & 15) ^ 8) - 8;  // flipping the sign bit and subtracting it extends it
}

/// The first value of the pair, 0 to 15.
TESSERA_FN constexpr int low(uint4x2 pair) {
  return pair.bits & 15;
}

/// The second value of the pair.
TESSERA_FN constexpr int high(int4x2 pair) {
  return ((pair.bits >> 4) ^ 8) - 8;
}

/// The second value of the pair, 0 to 15.
TESSERA_FN constexpr int high(uint4x2 pair) {
  return pair.bits >> 4;
}

}  // namespace v0
}  // namespace tessera
