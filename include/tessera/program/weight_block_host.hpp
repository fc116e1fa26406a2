// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What the fast versions of the block steps for processors have in common, whatever their vectors: counting exponents, words that
/// may be read ahead, lists of escapes.
///
///     std::uint64_t counts[256] = {};
///     tessera::weight_block_counter<tessera::bfloat16, tessera::keep_mantissa<7>>::count(block, counts);
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/core/bits.hpp>
#include <tessera/program/weight_block.hpp>

namespace tessera {
inline namespace v0 {

/// Counts how often each exponent is kept of a block.
template <class T, class Mantissa>
struct weight_block_counter {
  /// Neighbours often have equal exponents, and a counter that was just written is slow to read: they go to different tables.
  static constexpr int tables = 8;

  /// Adds to counts[256].
  static void count(weight_block<T> const& block, std::uint64_t* counts) {
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
      std::uint32_t sum = 0;
      for (auto const& one : table) {
        sum += one[exponent];
      }
      counts[exponent] += sum;
    }
  }

 private:
  static void count_eight(weight_block<T> const& block, int first, std::uint32_t (&table)[tables][256]) {
    if constexpr (Mantissa::template is_lossless<T>) {
      constexpr int words = static_cast<int>(sizeof(T));  // of eight bytes, with 8 / words values each
      constexpr int in_word = tables / words;
      std::uint64_t word[words];
      std::memcpy(word, block.weights + first, sizeof(word));
      for (int i = 0; i < tables; ++i) {
        const int place = is_little_endian() ? i % in_word : in_word - 1 - i % in_word;
        const auto bits = static_cast<std::uint32_t>(word[i / in_word] >> (place * scalar_traits<T>::bits));
        ++table[i][exponent_split<T>::exponent(bits)];
      }
    } else {
      for (int i = 0; i < tables; ++i) {
        ++table[i][block.template keep<Mantissa>(first + i).exponent];
      }
    }
  }

  static constexpr bool is_little_endian() { return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__; }
};

namespace detail {

/// Hands the words of a block to code that reads more than it takes: nothing outside the words is read, and after the last come
/// zeros. `at` is the next word; before each row call `prepare_row`, after it `at` may have moved by at most `row_bytes`.
struct weight_words {
  static constexpr int row_bytes = 2 * 8 * 32;          ///< of a type with eight pairs a lane
  static constexpr int reach = row_bytes + 2 * 32;      ///< so many bytes from `at` on may be read in a row

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
    } else if (at - begin_ > left_) {  // a broken stream: stay with the zeros
      before_ += (at - begin_) - left_;
      at = begin_ + left_;
    }
  }

  /// Words taken so far, the zeros after the last included.
  std::int64_t used() const { return (before_ + (at - begin_)) / 2; }

 private:
  void use_tail() {
    const std::ptrdiff_t taken = at - begin_;
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
  std::ptrdiff_t left_;          ///< bytes of words from begin_ on
  std::ptrdiff_t before_ = 0;    ///< bytes taken before begin_
  std::uint8_t tail_[2 * reach];
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
