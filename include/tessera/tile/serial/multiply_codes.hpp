// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `multiply_codes<Depth>`: sums += a b^T for matrices of 8-bit integers in memory, by one thread with AVX2, where the
/// processor has it.
///
///     std::int8_t a[64 * 128], b[64 * 128];
///     std::int32_t sums[64][64] = {};
///     bool const is_done = tessera::multiply_codes<128>(a, 128, b, 128, sums);
///
/// Two neighbours along the depth become a pair of 16 bits each, once for all products that they are in; a word of four
/// codes has two pairs, of its even and of its odd codes. Sums wrap.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/tile/serial/vectors.hpp>

namespace tessera {
inline namespace v0 {

#if defined(TESSERA_HAS_VECTORS)
namespace detail {

/// The pairs of `Rows` rows of codes: those of 32 codes are the even ones of eight words, then the odd ones.
template <int Depth, int Rows>
[[gnu::target("avx2")]] void make_pairs_of_rows(std::int8_t const* from, std::int64_t stride,
                                                std::int32_t (&to)[Rows][Depth / 2]) {
  for (int row = 0; row < Rows; ++row) {
    for (int k = 0; k < Depth; k += 32) {
      auto const codes = vector_at<sixteen_halves>(from + row * stride + k).value;
      vector_at<sixteen_halves>(&to[row][k / 2]).value = (codes << 8) >> 8;
      vector_at<sixteen_halves>(&to[row][k / 2 + 8]).value = codes >> 8;
    }
  }
}
/// The same by columns.
template <int Depth, int Columns>
[[gnu::target("avx2")]] void make_pairs_of_columns(std::int8_t const* from, std::int64_t stride,
                                                   std::int32_t (&to)[Depth / 2][Columns]) {
  for (int column = 0; column < Columns; column += 8) {
    for (int k = 0; k < Depth; k += 32) {
      eight_words words[8];
      for (int i = 0; i < 8; ++i) {
        words[i] = vector_at<eight_words>(from + (column + i) * stride + k).value;
      }
      transpose_eight(words);
      for (int i = 0; i < 8; ++i) {
        auto const codes = reinterpret_cast<sixteen_halves>(words[i]);
        vector_at<sixteen_halves>(&to[k / 2 + i][column]).value = (codes << 8) >> 8;
        vector_at<sixteen_halves>(&to[k / 2 + 8 + i][column]).value = codes >> 8;
      }
    }
  }
}
/// Sums of 16 columns of a row. Rows are written out where they are used, as not all compilers unroll loops over them.
struct sixteen_words {
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
  sixteen_words own[4] = {};
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
/// those from row to row.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
template <int Depth, int Rows, int Columns>
TESSERA_FN bool multiply_codes([[maybe_unused]] std::int8_t const* a, [[maybe_unused]] std::int64_t a_stride,
                               [[maybe_unused]] std::int8_t const* b, [[maybe_unused]] std::int64_t b_stride,
                               [[maybe_unused]] std::int32_t (&sums)[Rows][Columns]) {
#if defined(TESSERA_HAS_VECTORS)
  if constexpr (Rows % 4 == 0 && Columns % 16 == 0 && Depth % 32 == 0) {
    if (detail::has_vectors()) {
      std::int32_t rows[Rows][Depth / 2];
      std::int32_t columns[Depth / 2][Columns];
      detail::make_pairs_of_rows<Depth>(a, a_stride, rows);
      detail::make_pairs_of_columns<Depth>(b, b_stride, columns);
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
