// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `page_lanes`: which elements of a page's keys or values a thread has while it compresses them, and where its codes
/// of 4 bits go (program/cache_page.hpp).
///
/// A *row* of Channels / 8 neighbouring threads has the tokens g, g + 8, g + 16 and g + 24, or the same + 32; a thread
/// has eight neighbouring channels of them, an *octet*. It keeps its tokens in four *slots*, of which the first is
/// another token for every quarter of a row: sums over channels are halved among threads without choosing between
/// registers,
///
///     slots 0, 1   +=   slots 2, 3 of the thread half a row away
///     slot 0       +=   slot 1 of the thread a quarter of a row away
///     slot 0       +=   slot 0 of threads an eighth of a row away, and so on
///
/// which is the order of row_sum() in program/cache_codes.hpp.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/program/cache_page.hpp>

namespace tessera {
inline namespace v0 {

/// Channels: 64, 128 or 256.
template <int Channels>
struct page_lanes {
  static constexpr int octets = Channels / 8;                     ///< of a token, and threads of a row
  static constexpr int slots = 4;                                 ///< tokens of a thread
  static constexpr int rows = cache_page_format::tokens / slots;  ///< of threads
  static constexpr int lanes = rows * octets;                     ///< threads
  static constexpr int words_of_pair = 4;                         ///< from key_word(t, tile) to that of t + 1
  static constexpr int halves_of_channel = 32;  ///< from value_half(channel, tile) to that of channel + 1
  static_assert(Channels == 64 || Channels == 128 || Channels == 256);

  int lane;  ///< the thread

  /// Which octet of channels it has.
  [[nodiscard]] TESSERA_FN constexpr int octet() const { return static_cast<int>(number() % octets); }
  /// Which row of threads it is in.
  [[nodiscard]] TESSERA_FN constexpr int row() const { return static_cast<int>(number() / octets % rows); }
  /// A token's number among the four of its row is slot ^ swap().
  [[nodiscard]] TESSERA_FN constexpr int swap() const { return octet() / (octets / 4); }
  /// The page's token that is in a slot.
  [[nodiscard]] TESSERA_FN constexpr int token(int slot) const {
    return row() % 8 + row() / 8 * 32 + 8 * (slot ^ swap());
  }
  /// Threads of a quarter of a row have the same sums in the end.
  [[nodiscard]] TESSERA_FN constexpr int place_in_quarter() const { return octet() % (octets / 4); }
  /// The thread of the same place in its quarter whose slot 0 is the token that this one has in `slot`.
  [[nodiscard]] TESSERA_FN constexpr int lane_of(int slot) const {
    return row() * octets + place_in_quarter() + octets / 4 * (slot ^ swap());
  }

  /// Of four neighbouring threads each has a token's range and scale over a group of channels: the one of this slot.
  [[nodiscard]] TESSERA_FN constexpr int slot_of_group() const { return (octet() % 2 * 2 + octet() / 2 % 2) ^ swap(); }
  /// Which of them has those of the token that is in `slot` here.
  [[nodiscard]] TESSERA_FN constexpr int lane_of_group(int slot) const {
    const int which = slot ^ swap();
    return row() * octets + octet() / 4 * 4 + which / 2 + which % 2 * 2;
  }

  // Codes. `low` and `high` are codes of 16 bits each, of which words take the lower halves.

  /// Two codes side by side, as pairs stand in words.
  [[nodiscard]] TESSERA_FN static constexpr std::uint32_t pair(std::uint32_t low, std::uint32_t high) {
    return (low & 0xffffU) | high << 16;
  }

  /// What pairs of codes of keys are multiplied by before they are added up to a word: those of the first of two
  /// slots, and of the second.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t key_factor(int second) const {
    return 1U << (4 * ((swap() & 1) ^ second) + 8 * (octet() % 2));
  }
  /// Likewise, of values.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t value_factor(int second) const {
    return 1U << (8 * ((swap() & 1) ^ second) + 4 * (octet() % 2));
  }
  /// The tile of slots 2 * two and 2 * two + 1.
  [[nodiscard]] TESSERA_FN constexpr int tile(int two) const { return row() / 8 * 2 + (two ^ swap() / 2); }

  /// Keys: the word, counted from the first one of the codes, of channels 2 * t and 2 * t + 1 of the octet; the two
  /// threads of a strip have a half of the word each.
  [[nodiscard]] TESSERA_FN constexpr int key_word(int t, int tile) const {
    return lane_codes::place(4, octet() / 2, row() % 8 * 4 + t, tile);
  }
  /// Values: the half of a word, counted from the first one of the codes, of a channel of the octet. Likewise.
  [[nodiscard]] TESSERA_FN constexpr int value_half(int channel, int tile) const {
    return 2 * lane_codes::place(4, octet() / 2, channel * 4 + row() % 8 / 2, tile) + row() % 2;
  }

 private:
  /// Of which compilers know that it is not negative.
  [[nodiscard]] TESSERA_FN constexpr unsigned number() const { return static_cast<unsigned>(lane); }
};

/// Numbers of pages that are to be sealed: head after head, page after page, sequence after sequence.
struct page_number {
  std::uint32_t sequence;  ///< of the batch
  std::uint32_t page;      ///< of those that are sealed now
  std::uint32_t head;      ///< of keys

  /// The parts of a number, where sequences have so many pages and heads.
  [[nodiscard]] TESSERA_FN static constexpr page_number of(std::uint32_t number, std::uint32_t pages,
                                                           std::uint32_t heads) {
    return {number / heads / pages, number / heads % pages, number % heads};
  }
};

/// A float's bits as an integer of the same order; of zeros -0 is the smaller one.
[[nodiscard]] TESSERA_FN constexpr std::int32_t ordered_bits(std::uint32_t bits) {
  return static_cast<std::int32_t>((bits >> 31) != 0 ? bits ^ 0x7fffffffU : bits);
}
/// And back.
[[nodiscard]] TESSERA_FN constexpr std::uint32_t bits_in_order(std::int32_t ordered) {
  return ordered < 0 ? static_cast<std::uint32_t>(ordered) ^ 0x7fffffffU : static_cast<std::uint32_t>(ordered);
}

}  // namespace v0
}  // namespace tessera
