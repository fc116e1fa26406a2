// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What the block steps for AVX2 and AVX-512 have in common: counting exponents, words that may be read ahead, lists of
/// escapes.
///
///     std::uint64_t counts[256] = {};
///     tessera::weight_block_counter<tessera::bfloat16, tessera::keep_mantissa<7>>::count(group, block, counts);
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <tessera/core/bits.hpp>
#include <tessera/program/weights/block.hpp>
#include <tessera/tile/serial/group.hpp>

namespace tessera {
inline namespace v0 {

/// Counts how often each exponent occurs among the kept weights of a block.
template <class T, class Mantissa>
struct weight_block_counter {
  /// Tables of counters. Neighbours often have equal exponents, and a counter that was just written is slow to read, so
  /// that neighbours go to different tables.
  static constexpr int tables = 8;

  /// Adds counts to counts[256], to which other groups may add at the same time.
  static void count(serial_group<32> const& group, weight_block<T> const& given, std::uint64_t* counts) {
    weight_block<T> const block = given;  // a copy, so that the compiler sees that writing counters does not change it
    std::uint32_t table[tables][256];
    std::memset(table, 0, sizeof(table));
    int i = 0;
    for (; i + tables <= block.count; i += tables) {
      count_eight(block, i, table);
    }
    for (; i < block.count; ++i) {
      ++table[0][block.template keep<Mantissa>(i).exponent];
    }
    for (int exponent = 0; exponent < 256; ++exponent) {
      std::uint32_t all = 0;
      for (auto const& one : table) {
        all += one[exponent];
      }
      if (all != 0) {
        group.atomic_add(counts[exponent], all);
      }
    }
  }

 private:
  using each = std::make_integer_sequence<int, tables>;

  static void count_eight(weight_block<T> const& block, int first, std::uint32_t (&table)[tables][256]) {
    if constexpr (Mantissa::template is_lossless<T>) {
      constexpr int words = static_cast<int>(sizeof(T));  // words of eight bytes, each with tables / words values
      std::uint64_t word[words];
      std::memcpy(word, block.weights + first, sizeof(word));
      count_words(word, table, each{});
    } else {
      std::uint32_t exponent[tables];
      for (int i = 0; i < tables; ++i) {
        exponent[i] = block.template keep<Mantissa>(first + i).exponent;
      }
      count_exponents(exponent, table, each{});
    }
  }

  // Unrolled for the compiler: loops that it keeps take twice the time.
  template <int... I>
  static void count_words(std::uint64_t const* word, std::uint32_t (&table)[tables][256],
                          std::integer_sequence<int, I...>) {
    (++table[I][exponent_split<T>::exponent(value_in<I>(word))], ...);
  }
  template <int... I>
  static void count_exponents(std::uint32_t const* exponent, std::uint32_t (&table)[tables][256],
                              std::integer_sequence<int, I...>) {
    (++table[I][exponent[I]], ...);
  }

  template <int I>
  static std::uint32_t value_in(std::uint64_t const* word) {
    constexpr int in_word = tables / static_cast<int>(sizeof(T));
    constexpr bool is_little_endian = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    constexpr int slot = is_little_endian ? I % in_word : in_word - 1 - I % in_word;
    return static_cast<std::uint32_t>(word[I / in_word] >> (slot * scalar_traits<T>::bits));
  }
};

namespace detail {

/// Hands the words of a block to code that reads more than it takes. Nothing outside the words is read; after the last
/// word come zeros. `at` is the next word. Before each row call `prepare_row`; in the row `at` may move by at most
/// `row_bytes`.
struct weight_words {
  /// The most bytes of a row, those of a type with eight pairs a lane.
  static constexpr int row_bytes = 2 * 8 * 32;
  static constexpr int reach = row_bytes + 2 * 32;  ///< bytes from `at` on that may be read in a row

  std::uint8_t const* at;

  weight_words(std::uint8_t const* words, int word_count)
      : at(words), begin_(words), left_(2 * std::ptrdiff_t{word_count}) {
    prepare_row();
  }
  weight_words(weight_words const&) = delete;
  weight_words& operator=(weight_words const&) = delete;

  void prepare_row() {
    if (left_ - (at - begin_) >= reach) {
      return;
    }
    if (begin_ != tail_) {
      use_tail();
    } else if (at - begin_ > left_) {  // a corrupt stream: stay with the zeros
      before_ += (at - begin_) - left_;
      at = begin_ + left_;
    }
  }

  /// The words taken so far, including zeros after the last word.
  std::int64_t used() const { return (before_ + (at - begin_)) / 2; }

 private:
  void use_tail() {
    std::ptrdiff_t const taken = at - begin_;
    before_ += taken;
    left_ -= taken;
    if (left_ > 0) {
      std::memcpy(tail_, at, static_cast<std::size_t>(left_));
    }
    std::memset(tail_ + left_, 0, static_cast<std::size_t>(2 * reach - left_));
    begin_ = tail_;
    at = tail_;
  }

  std::uint8_t const* begin_;
  std::ptrdiff_t left_;        ///< bytes of words from begin_ on
  std::ptrdiff_t before_ = 0;  ///< bytes taken before begin_
  std::uint8_t tail_[2 * reach];
};

/// What the block steps for AVX2 and AVX-512 know of a value's bits.
template <class T, class Mantissa>
struct weight_bits {
  using traits = scalar_traits<T>;
  static constexpr int kept = Mantissa::kept_bits;
  static constexpr bool is_lossless = Mantissa::template is_lossless<T>;
  /// Whether there is a fast join: for residuals of up to eight bits, and for whole values.
  static constexpr bool joins_fast = is_lossless || kept <= 7;
  /// The mantissa bits in the byte that has the sign (fp32 has sixteen more below this byte).
  static constexpr int high_mantissa_bits = traits::mantissa_bits % 8;

  /// The exponent in the two highest bytes of a value (a type of one byte has `high` alone). Like the portable join,
  /// this drops what the window of a corrupt stream puts beyond the sign.
  struct exponent_bytes {
    alignas(16) std::uint8_t low[exponent_window::codes];
    alignas(16) std::uint8_t high[exponent_window::codes];
  };
  static exponent_bytes exponents(exponent_window window) {
    exponent_bytes bytes{};
    for (std::uint32_t code = 0; code < exponent_window::codes; ++code) {
      std::uint64_t const pattern = std::uint64_t{window.exponent(code)} << traits::mantissa_bits;
      bytes.low[code] = static_cast<std::uint8_t>(pattern >> (traits::bits > 16 ? traits::bits - 16 : 0));
      bytes.high[code] = static_cast<std::uint8_t>(pattern >> (traits::bits - 8));
    }
    return bytes;
  }

  /// The highest byte without the exponent, by the highest bits of the residual. It is for all types but bf16 and fp32,
  /// which have more than four such bits, and need no table.
  struct residual_bytes {
    alignas(16) std::uint8_t high[16];
  };
  static constexpr residual_bytes residuals() {
    residual_bytes bytes{};
    for (unsigned value = 0; value < 16; ++value) {
      unsigned const sign = (value >> (high_mantissa_bits & 3)) & 1;
      bytes.high[value] = static_cast<std::uint8_t>((sign << 7) | (value & ((1u << (high_mantissa_bits & 3)) - 1)));
    }
    return bytes;
  }

  /// Whether eight-bit arithmetic gives the same codes for a window, and a value with code 0 exists in it.
  static constexpr bool splits_fast(exponent_window window) {
    return is_lossless && window.base <= 256 - 14 && window.base <= exponent_split<T>::largest_exponent;
  }
  /// The weights of a row. Those of the block's last row are in `padded`, filled up with values of code 0 and no other
  /// bit.
  static T const* full_row(weight_block<T> const& block, int first, int row_weights, exponent_window window,
                           T* padded) {
    if (first + row_weights <= block.count) {
      return block.weights + first;
    }
    std::uint32_t const filler = exponent_split<T>::join(window.base, 0);
    for (int i = 0; i < row_weights; ++i) {
      padded[i] = first + i < block.count ? block.weights[first + i]
                                          : from_bits<T>(static_cast<typename traits::bits_type>(filler));
    }
    return padded;
  }
};

/// Which pairs a table can code: bit (symbol % 8) of low[symbol / 16] or, where symbol % 16 is 8 or more, of
/// high[symbol / 16].
struct codable_pairs {
  alignas(16) std::uint8_t low[16];
  alignas(16) std::uint8_t high[16];

  explicit codable_pairs(pair_coder::encode_table const* table) {
    std::memset(this, 0xff, sizeof(*this));
    if (table != nullptr) {
      for (int i = 0; i < 16; ++i) {
        low[i] = eight(table->entry + 16 * i);
        high[i] = eight(table->entry + 16 * i + 8);
      }
    }
  }

 private:
  static std::uint8_t eight(pair_coder::encode_entry const* entry) {
    unsigned bits = 0;
    for (int i = 0; i < 8; ++i) {
      bits |= static_cast<unsigned>(pair_coder::can_code(entry[i])) << i;
    }
    return static_cast<std::uint8_t>(bits);
  }
};

/// Counts the escapes of a row and lists them if they fit. `masks`: bit i of word j is for weight 64 j + i of the row.
/// `before`: escapes of the rows before. Returns the number of escapes of this row.
template <class T, class Mantissa>
int list_row_escapes(weight_block<T> const& block, std::uint64_t* masks, int mask_count, int first, int before,
                     weight_block_scratch& scratch) {
  int found = 0;
  for (int i = 0; i < mask_count; ++i) {
    int const valid = block.count - (first + 64 * i);
    masks[i] &= valid >= 64 ? ~std::uint64_t{0} : valid <= 0 ? 0 : (std::uint64_t{1} << valid) - 1;
    found += popcount(masks[i]);
  }
  if (before + found <= weight_stream_spec::largest_escapes) {
    std::uint32_t* next = scratch.escapes + before;
    for (int i = 0; i < mask_count; ++i) {
      for (std::uint64_t left = masks[i]; left != 0; left &= left - 1) {
        int const position = first + 64 * i + count_trailing_zeros(left);
        kept_value const kept = block.template keep<Mantissa>(position);
        *next++ = weight_escape::pack(static_cast<std::uint32_t>(position), kept.exponent, kept.lost_nan);
      }
    }
  }
  return found;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
