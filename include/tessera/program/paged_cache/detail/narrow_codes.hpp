// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `narrow_codes`: codes of 2 or 3 bits from the words of codes of 4 bits to those of a page
/// (program/paged_cache/page_format.hpp), for one lane of a strip, both halves of a word at a time.
///
///     std::uint32_t words[3];
///     narrow_codes<3>(four, words);                    // the 16 fields of four[4], each of 4 bits, in 3 words
///
/// A word of 4 bits has the four fields of a tile. They are joined to Tn, 4 * bits bits of tile n, in either half:
///
///     2 bits    T0 T1,  T2 T3                                                             36 operations
///     3 bits    T0 and the lowest of T1, the rest of T1 and half of T2, ...               44 operations
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The four fields of a half of a word, without the bits between them, in the lowest bits of the half. The upper 4 -
/// Bits bits of each field are 0.
template <int Bits>
[[nodiscard]] TESSERA_FN constexpr std::uint32_t joined_fields(std::uint32_t word) {
  if constexpr (Bits == 2) {
    std::uint32_t const pairs = (word & 0x03030303U) | (word >> 2 & 0x0c0c0c0cU);
    return (pairs & 0x000f000fU) | (pairs >> 4 & 0x00f000f0U);
  } else {
    std::uint32_t const pairs = (word & 0x07070707U) | (word >> 1 & 0x38383838U);
    return (pairs & 0x003f003fU) | (pairs >> 2 & 0x0fc00fc0U);
  }
}

}  // namespace detail

/// Packs the codes of a lane: `four` has its words for 4 bits, `words` gets those for Bits bits.
template <int Bits>
TESSERA_FN constexpr void narrow_codes(std::uint32_t const (&four)[4], std::uint32_t (&words)[Bits]) {
  static_assert(Bits == 2 || Bits == 3, "tessera: narrow_codes makes words for 2 or 3 bits");
  std::uint32_t const tile[4] = {detail::joined_fields<Bits>(four[0]), detail::joined_fields<Bits>(four[1]),
                                 detail::joined_fields<Bits>(four[2]), detail::joined_fields<Bits>(four[3])};
  if constexpr (Bits == 2) {
    words[0] = tile[0] | tile[1] << 8;
    words[1] = tile[2] | tile[3] << 8;
  } else {  // bit 15 of word i is bit i of the last field
    words[0] = tile[0] | (tile[1] << 12 & 0x70007000U) | (tile[3] << 6 & 0x80008000U);
    words[1] = (tile[1] >> 3 & 0x01ff01ffU) | (tile[2] << 9 & 0x7e007e00U) | (tile[3] << 5 & 0x80008000U);
    words[2] = (tile[2] >> 6 & 0x003f003fU) | (tile[3] << 6 & 0x7fc07fc0U) | (tile[3] << 4 & 0x80008000U);
  }
}

}  // namespace v0
}  // namespace tessera
