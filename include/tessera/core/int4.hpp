// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Two 4-bit integers in one byte: the unit in which 4-bit codes are stored, with the first one in the low nibble.
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
  static constexpr int smallest = -8;  ///< of either value's range
  static constexpr int largest = 7;    ///< of either value's range

  std::uint8_t bits;  ///< the first value in the low four bits, the second in the high four

  friend constexpr bool operator==(int4x2, int4x2) = default;
};

/// Keeps the low four bits of both; a caller that may be out of range clamps to smallest..largest first.
TESSERA_FN constexpr int4x2 pack_int4(int low, int high) {
  return {static_cast<std::uint8_t>((low & 15) | ((high & 15) << 4))};
}

/// The first value of the pair.
TESSERA_FN constexpr int low(int4x2 pair) {
  return ((pair.bits & 15) ^ 8) - 8;  // flipping the sign bit and subtracting it extends it
}

/// The second value of the pair.
TESSERA_FN constexpr int high(int4x2 pair) {
  return ((pair.bits >> 4) ^ 8) - 8;
}

}  // namespace v0
}  // namespace tessera
