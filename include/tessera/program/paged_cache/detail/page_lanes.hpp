// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `page_lanes`: the elements of a page's keys or values that a thread has while it compresses them, and where its
/// codes of 4 bits go (program/paged_cache/page_format.hpp).
///
/// A *row* of Channels / 8 neighbouring threads has four tokens, and each thread eight channels of them. Such an
/// *eight* (see first_of_four() in program/paged_cache/page_arithmetic.hpp) has all codes of the words that the thread
/// writes. A thread keeps its tokens in four *slots*, of which the first is a different token for each of four
/// neighbouring threads. So sums over channels are halved among threads without choosing between registers,
///
///     slots 0, 1   +=   slots 2, 3 of the next thread (of two)
///     slot 0       +=   slot 1 of the thread two away (of four)
///     slot 0       +=   slot 0 of the thread four away, and so on
///
/// which is the order of pair_sum().
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/program/paged_cache/page_arithmetic.hpp>
#include <tessera/program/paged_cache/page_format.hpp>

namespace tessera {
inline namespace v0 {

/// The elements of threads. Channels: 64, 128 or 256.
template <int Channels>
struct page_lanes {
  static constexpr int eights = Channels / 8;                     ///< eights of a token, and threads of a row
  static constexpr int slots = 4;                                 ///< tokens of a thread
  static constexpr int rows = cache_page_format::tokens / slots;  ///< rows of threads
  static constexpr int lanes = rows * eights;                     ///< threads of a block
  static_assert(Channels == 64 || Channels == 128 || Channels == 256);

  int lane;  ///< number of the thread

  /// The number of the thread's eight channels.
  [[nodiscard]] TESSERA_FN constexpr int eight() const { return static_cast<int>(number() % eights); }
  /// The number of the thread's row.
  [[nodiscard]] TESSERA_FN constexpr int row() const { return static_cast<int>(number() / eights % rows); }
  /// The sixteen channels of which its eight is a part.
  [[nodiscard]] TESSERA_FN constexpr int strip() const { return eight() / 2; }
  /// Which four of the eight are a slot's first elements. It varies, so that threads that load together have all banks.
  [[nodiscard]] TESSERA_FN constexpr int first_four() const { return static_cast<int>(number() / 8 % 2); }
  /// The channel of element j of a slot.
  [[nodiscard]] TESSERA_FN constexpr int channel(int j) const {
    return first_of_four(eight(), j / 4 ^ first_four()) + j % 4;
  }

  /// A token's number among the four of its row is slot ^ swap().
  [[nodiscard]] TESSERA_FN constexpr int swap() const { return eight() % 2 * 2 + eight() / 2 % 2; }
  /// The token of keys that is in a slot.
  [[nodiscard]] TESSERA_FN constexpr int key_token(int slot) const {
    return first_token(row()) + key_distance(slot ^ swap());
  }
  /// The first token of keys of a row of threads.
  [[nodiscard]] TESSERA_FN static constexpr int first_token(int row) { return row % 8 + row / 8 * 32; }
  /// The token of values that is in a slot: columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of a tile.
  [[nodiscard]] TESSERA_FN constexpr int value_token(int slot) const {
    return row() / 4 * 16 + row() % 4 * 2 + value_distance(slot ^ swap());
  }
  /// key_token(slot) ^ key_token(0), which has bits that only slots change.
  [[nodiscard]] TESSERA_FN static constexpr int key_distance(int slot) { return 8 * slot; }
  /// value_token(slot) ^ value_token(0), which has bits that only slots change.
  [[nodiscard]] TESSERA_FN static constexpr int value_distance(int slot) { return slot % 2 + slot / 2 * 8; }
  /// The number of the thread among those of its row that have the same sums in the end.
  [[nodiscard]] TESSERA_FN constexpr int copy() const { return eight() / 4; }
  /// The thread whose slot 0 holds the token in this thread's `slot` has the number lane ^ distance_to(slot).
  [[nodiscard]] TESSERA_FN static constexpr int distance_to(int slot) { return slot / 2 + slot % 2 * 2; }

  // Words of codes. A selector picks bytes, a hexadecimal digit each, from two words: 0 to 3 of the first, 4 to 7 of
  // the second.

  /// The selector of keys: from codes a, 0, b, 0 of the first four and of the others, in the order of a word for one
  /// token.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t key_selector() const {
    return first_four() == 0 ? 0x6240U : 0x2604U;
  }
  /// The factor of such words before they are added up: for the first of two slots, and for the second.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t key_factor(int second) const {
    return (swap() & 1) == second ? 1U : 16U;
  }
  /// The word, counted from the first one of the codes, of channels 2 i and 2 i + 1 of fours, and of slots 2 * two and
  /// 2 * two + 1.
  [[nodiscard]] TESSERA_FN constexpr int key_word(int i, int two) const {
    return lane_codes::slot(4, strip(), row() % 8 * 4 + eight() % 2 * 2 + i, row() / 8 * 2 + (eight() % 2 ^ two));
  }

  /// The factor of values: four codes in bytes are multiplied by it before those of both fours are added up to four
  /// pairs.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t value_factor(int four) const {
    return four == first_four() ? 1U : 16U;
  }
  /// The selector of values: from pairs a, b of slots 0, 1, 0, 1 and of slots 2, 3, 2, 3 those of a, or those of b.
  /// Which come first differs among strips, so that threads that store together have more banks.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t value_selector(int which) const {
    std::uint32_t selector = 0;
    for (int slot = 0; slot < slots; ++slot) {
      int const token = slot ^ swap();  // the token of bytes 0, 2, 1 and 3 of words
      selector |= static_cast<std::uint32_t>(slot / 2 * 4 + slot % 2) << (token % 2 * 8 + token / 2 * 4);
    }
    return selector + (is_second(which) != 0 ? 0x2222U : 0U);
  }
  /// The word, counted from the first one of the codes, of the channel 2 * two (a) or the next one (b) of both fours.
  [[nodiscard]] TESSERA_FN constexpr int value_word(int two, int which) const {
    int const channel_of_four = 2 * two + is_second(which);
    return lane_codes::slot(4, strip(), (eight() % 2 * 4 + channel_of_four) * 4 + row() % 4, row() / 4);
  }

 private:
  /// The thread's number, which compilers see is not negative.
  [[nodiscard]] TESSERA_FN constexpr unsigned number() const { return static_cast<unsigned>(lane); }
  [[nodiscard]] TESSERA_FN constexpr int is_second(int which) const { return which ^ strip() % 2; }
};

/// The slots of a thread's elements and words, found once for all pages: those of slot 0, from which the others differ
/// in single bits. Elements count from the first one of a page's keys or values of a layer.
template <int Channels>
struct page_slots {
  /// The elements that a thread has.
  using lanes_type = page_lanes<Channels>;

  std::uint32_t key;          ///< the first four elements of keys
  std::uint32_t value;        ///< the first four elements of values
  std::uint32_t value_words;  ///< the first word of codes of values

  /// The slots of a thread.
  [[nodiscard]] TESSERA_FN static constexpr page_slots of(lanes_type const& at) {
    return {static_cast<std::uint32_t>(at.key_token(0) * Channels + at.channel(0)),
            static_cast<std::uint32_t>(at.value_token(0) * Channels + at.channel(0)),
            static_cast<std::uint32_t>(at.value_word(0, 0))};
  }

  /// Eight neighbouring channels of the token of keys that is in a slot: those numbered `eight`, and not those of key.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t octet_of(int slot, int eight) const {
    std::uint32_t const first = key / Channels * Channels + static_cast<std::uint32_t>(8 * eight);
    return first ^ static_cast<std::uint32_t>(lanes_type::key_distance(slot) * Channels);
  }
  /// Elements 4 * half to 4 * half + 3 of a slot of keys or values.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t four_of(bool are_keys, int slot, int half) const {
    int const away = are_keys ? lanes_type::key_distance(slot) : lanes_type::value_distance(slot);
    return (are_keys ? key : value) ^ static_cast<std::uint32_t>(away * Channels + 8 * half);
  }
  /// The word of page_lanes::value_word().
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t value_word(int two, int which) const {
    return (value_words ^ static_cast<std::uint32_t>(16 * which)) + static_cast<std::uint32_t>(32 * two);
  }
};

/// The number of a page that is to be sealed, in its parts: head after head, page after page, sequence after sequence.
struct page_number {
  std::uint32_t sequence;  ///< number of the sequence in the batch
  std::uint32_t page;      ///< number among the pages sealed in this call
  std::uint32_t head;      ///< key head

  /// Splits a number, where sequences have so many pages and heads.
  [[nodiscard]] TESSERA_FN static constexpr page_number of(std::uint32_t number, std::uint32_t pages,
                                                           std::uint32_t heads) {
    return {number / heads / pages, number / heads % pages, number % heads};
  }
};

}  // namespace v0
}  // namespace tessera
