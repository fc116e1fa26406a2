// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `code_pairs`: turns codes of 2, 3, 4 or 8 bits, as words of a page hold them (program/paged_cache/page_format.hpp),
/// into the pairs of fp16 that are a tensor core's operands.
///
/// A shift and a mask take a pair out of its word. Read as fp16 it is codes times 2^-24 or, in rows g + 8, codes times
/// 2^(upper - 24): subnormal numbers, which tensor cores take. Fields of neighbouring rows share a shift.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/program/paged_cache/page_format.hpp>

namespace tessera {
inline namespace v0 {

template <int Bits>
struct code_pairs {
  static_assert(Bits == 2 || Bits == 3 || Bits == 4 || Bits == 8);
  static constexpr int words = Bits;                  ///< words of a lane and a strip
  static constexpr int upper = Bits == 8 ? 0 : Bits;  ///< powers of two by which rows g + 8 are higher
  static constexpr int in_a_word = 16 / Bits;         ///< fields of a half of a word
  /// The bits of the lowest code in either half of a word.
  static constexpr std::uint32_t mask = ((1U << Bits) - 1U) * 0x00010001U;

  /// The pair of register `a` of a tile: rows g + 8 * (a % 2).
  [[nodiscard]] TESSERA_FN static constexpr std::uint32_t of(std::uint32_t const (&from)[words], int tile, int a) {
    int const field = 4 * tile + a;
    int const raised = a % 2 * upper;
    if constexpr (Bits == 3) {
      if (field == 15) {  // its bits are bit 15 of each word
        return (from[0] >> 12 & 0x00080008U) | (from[1] >> 11 & 0x00100010U) | (from[2] >> 10 & 0x00200020U);
      }
    }
    int const shift = Bits * (field % in_a_word) - raised;
    std::uint32_t const word = from[field / in_a_word];
    return (shift < 0 ? word << -shift : word >> shift) & mask << raised;
  }
};

}  // namespace v0
}  // namespace tessera
