// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `add_products<Rows, Columns, Depth>`: sums += a b for small matrices in memory, by one thread with the widest vector
/// instructions that the processor has. It is the product of tile/gemm_tile.hpp.
///
///     float a[4][8] = {};
///     float b[8][16] = {};
///     float sums[4][16] = {};
///     tessera::add_products<4, 16, 8>(a, b, sums);
///
/// Floats: each sum is rounded after each product and each addition, in the order of the depth, so that all levels make
/// the same bits. Fused multiply-adds make them, too, where no product is rounded: so bounds of the numbers are looked
/// up for each call, and where all products are exact, as those of 16-bit floats are but for very large and small ones,
/// they are fused (detail/products_avx2.hpp). Integers: the numbers of a and b have at most 16 bits, with which sums
/// of two products are exact; sums wrap.
///
/// The level is that of core/cpu_features.hpp, asked for once in a process: AVX-512, for floats of multiples of 4 rows
/// and 64 columns; AVX2; or plain loops, which compilers vectorise with SSE2 if they optimise much. A compiler that is
/// told to use AVX2 vectorises these itself, and may fuse in them.
///
/// GFLOP/s of one core of a Xeon at 2.6 GHz, where 83 is what AVX2 can do and 166 what AVX-512 can, g++ 12 -O3:
///
///     rows x columns x depth    AVX2   AVX2, fused   AVX-512   AVX-512, fused   the time that bounds take beside these
///     128 x 128 x 32            65     78            84        149              9 % of AVX2's, 7 % of AVX-512's
///     64 x 64 x 16              62     79            86        156              20 %              15 %
///     64 x 128 x 16             60     79            84        141              13 %              10 %
///
/// On the Xeon additions wait for the ports of products; on processors of AMD they have their own, so that fusing gains
/// nothing, and nobody asks for bounds there (as their makers say: it was not measured).
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/cpu_features.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>
#include <tessera/tile/serial/detail/products_avx512.hpp>
#include <tessera/tile/serial/vectors.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The product by plain loops.
template <int Rows, int Columns, int Depth>
void add_products_portably(float const (&a)[Rows][Depth], float const (&b)[Depth][Columns],
                           float (&sums)[Rows][Columns]) {
  for (int row = 0; row < Rows; ++row) {
    for (int k = 0; k < Depth; ++k) {
      for (int column = 0; column < Columns; ++column) {
        sums[row][column] += a[row][k] * b[k][column];
      }
    }
  }
}
/// The same for integers.
template <int Rows, int Columns, int Depth>
void add_products_portably(std::int32_t const (&a)[Rows][Depth], std::int32_t const (&b)[Depth][Columns],
                           std::int32_t (&sums)[Rows][Columns]) {
  for (int row = 0; row < Rows; ++row) {
    for (int k = 0; k < Depth; ++k) {
      for (int column = 0; column < Columns; ++column) {
        auto const sum = static_cast<std::uint32_t>(sums[row][column]);
        sums[row][column] = static_cast<std::int32_t>(sum + static_cast<std::uint32_t>(a[row][k] * b[k][column]));
      }
    }
  }
}

#if defined(TESSERA_HAS_VECTORS) && !defined(__AVX2__) && !defined(__FMA__)

/// `Together` rows and 16 columns from (row, column) on.
template <int Together, int Rows, int Columns, int Depth>
[[gnu::target("avx2")]] void add_block_avx2(float const (&a)[Rows][Depth], float const (&b)[Depth][Columns],
                                            float (&sums)[Rows][Columns], int row, int column) {
  using stored = stored_vector<eight_floats>;
  eight_floats own[Together][2];
  for (int i = 0; i < Together; ++i) {
    own[i][0] = reinterpret_cast<stored const*>(&sums[row + i][column])->value;
    own[i][1] = reinterpret_cast<stored const*>(&sums[row + i][column + 8])->value;
  }
  for (int k = 0; k < Depth; ++k) {
    eight_floats const first = reinterpret_cast<stored const*>(&b[k][column])->value;
    eight_floats const second = reinterpret_cast<stored const*>(&b[k][column + 8])->value;
    for (int i = 0; i < Together; ++i) {
      own[i][0] += a[row + i][k] * first;
      own[i][1] += a[row + i][k] * second;
    }
  }
  for (int i = 0; i < Together; ++i) {
    reinterpret_cast<stored*>(&sums[row + i][column])->value = own[i][0];
    reinterpret_cast<stored*>(&sums[row + i][column + 8])->value = own[i][1];
  }
}
template <int Rows, int Columns, int Depth>
[[gnu::target("avx2")]] void add_products_avx2(float const (&a)[Rows][Depth], float const (&b)[Depth][Columns],
                                               float (&sums)[Rows][Columns]) {
  detail::clear_vectors const at_end;
  static_assert(Columns % 16 == 0);
  for (int column = 0; column < Columns; column += 16) {
    int row = 0;
    for (; row + 4 <= Rows; row += 4) {
      add_block_avx2<4>(a, b, sums, row, column);
    }
    for (; row < Rows; ++row) {
      add_block_avx2<1>(a, b, sums, row, column);
    }
  }
}

/// The same for integers: two neighbours along the depth become a pair of 16 bits each.
template <int Rows, int Columns, int Depth>
[[gnu::target("avx2")]] void add_products_avx2(std::int32_t const (&a)[Rows][Depth],
                                               std::int32_t const (&b)[Depth][Columns],
                                               std::int32_t (&sums)[Rows][Columns]) {
  detail::clear_vectors const at_end;
  static_assert(Columns % 16 == 0 && Depth % 2 == 0);
  using stored = stored_vector<eight_words>;
  for (int column = 0; column < Columns; column += 16) {
    sixteen_halves pairs[Depth / 2][2];
    for (int k = 0; k < Depth / 2; ++k) {
      for (int half = 0; half < 2; ++half) {
        eight_words const even = reinterpret_cast<stored const*>(&b[2 * k][column + 8 * half])->value;
        eight_words const odd = reinterpret_cast<stored const*>(&b[2 * k + 1][column + 8 * half])->value;
        pairs[k][half] = reinterpret_cast<sixteen_halves>((even & 0xffff) | odd << 16);
      }
    }
    for (int row = 0; row < Rows; ++row) {
      auto& to_first = *reinterpret_cast<stored*>(&sums[row][column]);
      auto& to_second = *reinterpret_cast<stored*>(&sums[row][column + 8]);
      eight_words first = to_first.value;
      eight_words second = to_second.value;
      for (int k = 0; k < Depth / 2; ++k) {
        auto const pair = static_cast<std::int32_t>((static_cast<std::uint32_t>(a[row][2 * k]) & 0xffffU) |
                                                    static_cast<std::uint32_t>(a[row][2 * k + 1]) << 16);
        auto const factor = reinterpret_cast<sixteen_halves>(pair - eight_words{});
        first += reinterpret_cast<eight_words>(__builtin_ia32_pmaddwd256(factor, pairs[k][0]));
        second += reinterpret_cast<eight_words>(__builtin_ia32_pmaddwd256(factor, pairs[k][1]));
      }
      to_first.value = first;
      to_second.value = second;
    }
  }
}

/// Whether the processor has AVX2, unless TESSERA_SIMD lowers its level.
inline bool multiplies_by_avx2() {
  static bool const does = best_simd_level() >= simd_level::avx2;
  return does;
}

#endif

}  // namespace detail

/// Adds the product of a and b to sums, floats.
template <int Rows, int Columns, int Depth>
void add_products(float const (&a)[Rows][Depth], float const (&b)[Depth][Columns], float (&sums)[Rows][Columns]) {
#if defined(TESSERA_HAS_VECTORS)
  if constexpr (Rows % 4 == 0 && Columns % 16 == 0 && Rows * Depth % 16 == 0) {
    if (detail::add_products_by_vectors(&a[0][0], &b[0][0], &sums[0][0], {Rows, Columns, Depth})) {
      return;
    }
  }
#endif
#if defined(TESSERA_HAS_VECTORS) && !defined(__AVX2__) && !defined(__FMA__)
  if constexpr (Columns % 16 == 0) {
    if (detail::multiplies_by_avx2()) {
      return detail::add_products_avx2(a, b, sums);
    }
  }
#endif
  detail::add_products_portably(a, b, sums);
}
/// The same for integers of at most 16 bits.
template <int Rows, int Columns, int Depth>
void add_products(std::int32_t const (&a)[Rows][Depth], std::int32_t const (&b)[Depth][Columns],
                  std::int32_t (&sums)[Rows][Columns]) {
#if defined(TESSERA_HAS_VECTORS) && !defined(__AVX2__) && !defined(__FMA__)
  if constexpr (Columns % 16 == 0 && Depth % 2 == 0) {
    if (detail::multiplies_by_avx2()) {
      return detail::add_products_avx2(a, b, sums);
    }
  }
#endif
  detail::add_products_portably(a, b, sums);
}

}  // namespace v0
}  // namespace tessera
