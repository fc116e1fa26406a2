// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `multiply_codes<Depth>`: sums += a b^T for matrices of integers of 8 or 4 bits in memory, by one thread with AVX2 or
/// AVX-512 VNNI, where the processor has it.
///
///     std::int8_t a[64 * 128] = {};
///     std::int8_t b[64 * 128] = {};
///     std::int32_t sums[64][64] = {};
///     bool const is_done = tessera::multiply_codes<128>(a, 128, b, 128, sums);
///
/// Codes become pairs of 16 bits each, once for all products that they are in. A word of 32 bits has as many pairs as a
/// half of it has codes: the first codes of both halves, the second ones, and so on. Sums wrap.
///
/// AVX-512, with VNNI and for multiples of 64 columns, multiplies the pairs that AVX2 has made.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>
#include <tessera/tile/serial/detail/pairs_avx512.hpp>
#include <tessera/tile/serial/vectors.hpp>

namespace tessera {
inline namespace v0 {

#if defined(TESSERA_HAS_VECTORS)
namespace detail {

/// How many pairs a word of codes has.
template <class Code>
inline constexpr int pairs_in_word = std::is_same_v<Code, int4x2> ? 4 : 2;
/// Pairs of a row of `Depth` elements.
template <class Code, int Depth>
inline constexpr int pairs_of_row = Depth / 4 * pairs_in_word<Code>;

/// The pairs of eight words: number `Part` of each.
template <class Code, int Part>
[[gnu::target("avx2"), gnu::always_inline]] inline void store_pairs(sixteen_halves const& codes, std::int32_t* to) {
  constexpr int bits = 16 / pairs_in_word<Code>;
  vector_at<sixteen_halves>(to).value = (codes << (16 - bits * (Part + 1))) >> (16 - bits);
}
/// All pairs of eight words; those of a number lie `distance` words behind those of the number before.
template <class Code>
[[gnu::target("avx2"), gnu::always_inline]] inline void store_all_pairs(sixteen_halves const& codes, std::int32_t* to,
                                                                        int distance) {
  store_pairs<Code, 0>(codes, to);
  store_pairs<Code, 1>(codes, to + distance);
  if constexpr (pairs_in_word<Code> == 4) {
    store_pairs<Code, 2>(codes, to + 2 * distance);
    store_pairs<Code, 3>(codes, to + 3 * distance);
  }
}

/// The pairs of `Rows` rows of codes, those of 32 bytes by their numbers in words.
template <int Depth, class Code, int Rows, int Pairs>
[[gnu::target("avx2")]] void make_pairs_of_rows(Code const* from, std::int64_t stride,
                                                std::int32_t (&to)[Rows][Pairs]) {
  detail::clear_vectors const at_end;
  for (int row = 0; row < Rows; ++row) {
    for (int k = 0; k < Depth; k += 32) {
      sixteen_halves const codes = vector_at<sixteen_halves>(from + row * stride + k).value;
      store_all_pairs<Code>(codes, &to[row][pairs_of_row<Code, 4> * (k / 4)], 8);
    }
  }
}
/// The same by columns.
template <int Depth, class Code, int Columns, int Pairs>
[[gnu::target("avx2")]] void make_pairs_of_columns(Code const* from, std::int64_t stride,
                                                   std::int32_t (&to)[Pairs][Columns]) {
  detail::clear_vectors const at_end;
  for (int column = 0; column < Columns; column += 8) {
    for (int k = 0; k < Depth; k += 32) {
      eight_words words[8];
      for (int i = 0; i < 8; ++i) {
        words[i] = vector_at<eight_words>(from + (column + i) * stride + k).value;
      }
      transpose_eight(words);
      for (int i = 0; i < 8; ++i) {
        auto const codes = reinterpret_cast<sixteen_halves>(words[i]);
        store_all_pairs<Code>(codes, &to[pairs_of_row<Code, 4> * (k / 4) + i][column], 8 * Columns);
      }
    }
  }
}
/// Sums of 16 columns of a row. Rows are written out where they are used, as not all compilers unroll loops over them.
struct row_of_words {
  eight_words first;
  eight_words second;

  /// Adds the products of a pair and of pairs of 16 columns.
  [[gnu::target("avx2"), gnu::always_inline]] void add(std::int32_t pair, sixteen_halves const& of_first,
                                                       sixteen_halves const& of_second) {
    eight_words const pairs = eight_words{} + pair;
    auto const factor = reinterpret_cast<sixteen_halves>(pairs);
    first += reinterpret_cast<eight_words>(__builtin_ia32_pmaddwd256(factor, of_first));
    second += reinterpret_cast<eight_words>(__builtin_ia32_pmaddwd256(factor, of_second));
  }
  [[gnu::target("avx2"), gnu::always_inline]] void add_to(std::int32_t* sums) const {
    vector_at<eight_words>(sums).value += first;
    vector_at<eight_words>(sums + 8).value += second;
  }
};

/// Four rows and 16 columns from (row, column) on.
template <int Rows, int Columns, int Pairs>
[[gnu::target("avx2")]] void add_pairs(std::int32_t const (&a)[Rows][Pairs], std::int32_t const (&b)[Pairs][Columns],
                                       std::int32_t (&sums)[Rows][Columns], int row, int column) {
  detail::clear_vectors const at_end;
  row_of_words own[4] = {};
  for (int k = 0; k < Pairs; ++k) {
    sixteen_halves const first = vector_at<sixteen_halves>(&b[k][column]).value;
    sixteen_halves const second = vector_at<sixteen_halves>(&b[k][column + 8]).value;
    own[0].add(a[row][k], first, second);
    own[1].add(a[row + 1][k], first, second);
    own[2].add(a[row + 2][k], first, second);
    own[3].add(a[row + 3][k], first, second);
  }
  own[0].add_to(&sums[row][column]);
  own[1].add_to(&sums[row + 1][column]);
  own[2].add_to(&sums[row + 2][column]);
  own[3].add_to(&sums[row + 3][column]);
}

}  // namespace detail
#endif

/// Adds a b^T to sums, if the processor has vectors for it; otherwise it returns false and does nothing. Strides are
/// those from row to row. Code: std::int8_t, or int4x2, whose elements are pairs along the depth.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
template <int Depth, class Code, int Rows, int Columns>
TESSERA_FN bool multiply_codes([[maybe_unused]] Code const* a, [[maybe_unused]] std::int64_t a_stride,
                               [[maybe_unused]] Code const* b, [[maybe_unused]] std::int64_t b_stride,
                               [[maybe_unused]] std::int32_t (&sums)[Rows][Columns]) {
  static_assert(std::is_same_v<Code, std::int8_t> || std::is_same_v<Code, int4x2>,
                "tessera: multiply_codes takes codes of 8 bits, or pairs of 4 bits");
#if defined(TESSERA_HAS_VECTORS)
  if constexpr (Rows % 4 == 0 && Columns % 16 == 0 && Depth % 32 == 0) {
    if (detail::has_vectors()) {
      std::int32_t rows[Rows][detail::pairs_of_row<Code, Depth>];
      std::int32_t columns[detail::pairs_of_row<Code, Depth>][Columns];
      detail::make_pairs_of_rows<Depth>(a, a_stride, rows);
      detail::make_pairs_of_columns<Depth>(b, b_stride, columns);
      if constexpr (Columns % 64 == 0) {
        if (detail::has_pair_sums()) {
          detail::add_pairs_avx512(&rows[0][0], &columns[0][0], &sums[0][0],
                                   {Rows, Columns, detail::pairs_of_row<Code, Depth>});
          return true;
        }
      }
      for (int column = 0; column < Columns; column += 16) {
        for (int row = 0; row < Rows; row += 4) {
          detail::add_pairs(rows, columns, sums, row, column);
        }
      }
      return true;
    }
  }
#endif
  return false;
}

}  // namespace v0
}  // namespace tessera
