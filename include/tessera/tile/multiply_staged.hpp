// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `multiply_staged<M>`: adds the product a b^T of two tiles in scratch to the sums of a TileMma.
///
///     using M = gemm_tile<bfloat16, shape<64, 64, 16>, Group>;
///     multiply_staged<M>(group, scratch.a, scratch.b, sums);    // each a staged_tile<bfloat16, 64, 32>
///
/// `multiply_staged_rows<M>` adds the product a b: b's rows are the depth, as values of tokens are for weights.
///
///     multiply_staged_rows<results>(group, weights, scratch.values, totals);   // 64 x 128 and 128 x 64
///
/// `multiply_words<M>` does the first for two sources, whose tiles are copied in words while earlier ones are
/// multiplied. Scratch has an array of stages for each of them.
///
///     bool const is_done = multiply_words<product>(group, a, b, {first_row, first_column}, scratch, sums);
///     // false: the sources do not have words, and nothing was done
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/pipelined.hpp>
#include <tessera/tile/source/async_source.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// Whether rows of a tile in scratch begin at multiples of 16 bytes, as those of tiles with chunk() do, so that M has
/// them loaded in one way and not in two.
template <class M, class Tile>
inline constexpr bool is_loaded_staged = requires(typename M::group_type const& group, typename M::a_tile& a,
                                                  Tile& tile) {
  tile.chunk(0, 0);
  M::load_staged_a(group, a, tile.values, Tile::stride);
};

/// Whether a tile loads operands of M itself, because its rows do not lie at one distance.
template <class M, class Tile>
inline constexpr bool is_loaded_by_tile = requires(typename M::group_type const& group, typename M::a_tile& a,
                                                   Tile const& tile) {
  tile.template load_a<M>(group, a, 0);
};

template <class M, class Tile>
TESSERA_FN void load_a_of(typename M::group_type const& group, typename M::a_tile& to, Tile const& tile, int column) {
  if constexpr (is_loaded_by_tile<M, Tile>) {
    tile.template load_a<M>(group, to, column);
  } else if constexpr (is_loaded_staged<M, Tile>) {
    M::load_staged_a(group, to, tile.values + column, Tile::stride);
  } else {
    M::load_a(group, to, tile.values + column, Tile::stride);
  }
}
template <class M, class Tile>
TESSERA_FN void load_b_transposed_of(typename M::group_type const& group, typename M::b_tile& to, Tile const& tile,
                                     int column) {
  if constexpr (is_loaded_by_tile<M, Tile>) {
    tile.template load_b_transposed<M>(group, to, column);
  } else if constexpr (is_loaded_staged<M, Tile>) {
    M::load_staged_b_transposed(group, to, tile.values + column, Tile::stride);
  } else {
    M::load_b_transposed(group, to, tile.values + column, Tile::stride);
  }
}
template <class M, class Tile>
TESSERA_FN void load_b_of(typename M::group_type const& group, typename M::b_tile& to, Tile const& tile, int row) {
  if constexpr (is_loaded_staged<M, Tile>) {
    M::load_staged_b(group, to, tile.values + row * Tile::stride, Tile::stride);
  } else {
    M::load_b(group, to, tile.values + row * Tile::stride, Tile::stride);
  }
}

}  // namespace detail

/// All lanes reach this call, after a sync that follows the writes to both tiles. a: M::rows rows; b: M::columns rows,
/// the columns of the product; both have the depth as columns, a multiple of M::depth. Products are added from the
/// first to the last column.
template <TileMma M, class A, class B>
TESSERA_FN void multiply_staged(typename M::group_type const& group, A const& a, B const& b,
                                typename M::sum_tile& sums) {
  static_assert(A::rows == M::rows && B::rows == M::columns && A::columns == B::columns && A::columns % M::depth == 0,
                "tessera: staged tiles have the extents of the product, and a whole number of its depths");
  if constexpr (requires {
                  M::template multiply_rows<A::columns>(group, a.values, A::stride, b.values, B::stride, sums);
                }) {
    if (M::template multiply_rows<A::columns>(group, a.values, A::stride, b.values, B::stride, sums)) {
      return;
    }
  }
  for (int at = 0; at < A::columns; at += M::depth) {
    typename M::a_tile a_tile;
    typename M::b_tile b_tile;
    detail::load_a_of<M>(group, a_tile, a, at);
    detail::load_b_transposed_of<M>(group, b_tile, b, at);
    M::multiply(group, a_tile, b_tile, sums);
  }
}

/// All lanes reach this call, after a sync that follows the writes to both tiles. a: M::rows rows, whose columns are
/// the depth; b: as many rows, of M::columns elements. Products are added from the first to the last row of b.
template <TileMma M, class A, class B>
TESSERA_FN void multiply_staged_rows(typename M::group_type const& group, A const& a, B const& b,
                                     typename M::sum_tile& sums) {
  static_assert(A::rows == M::rows && B::columns == M::columns && A::columns == B::rows && B::rows % M::depth == 0,
                "tessera: staged tiles have the extents of the product, and a whole number of its depths");
  for (int at = 0; at < B::rows; at += M::depth) {
    typename M::a_tile a_tile;
    typename M::b_tile b_tile;
    detail::load_a_of<M>(group, a_tile, a, at);
    detail::load_b_of<M>(group, b_tile, b, at);
    M::multiply(group, a_tile, b_tile, sums);
  }
}

/// Where a tile of a product begins.
struct product_corner {
  std::int64_t row;     ///< the first row of a
  std::int64_t column;  ///< the first row of b
};

/// All lanes reach this call. Returns whether the sources have words; otherwise nothing is done. Staged: arrays a and b
/// of as many stages. Afterwards scratch may still be read by other lanes.
template <TileMma M, SourceOfWords A, SourceOfWords B, class Staged>
[[nodiscard]] TESSERA_FN bool multiply_words(typename M::group_type const& group, A const& a, B const& b,
                                             product_corner const& at, Staged& staged, typename M::sum_tile& sums) {
  constexpr int stages = std::extent_v<decltype(Staged::a)>;
  constexpr std::int64_t depth = std::remove_extent_t<decltype(Staged::a)>::columns;
  return with_words(a, b, [&](auto const& a_words, auto const& b_words) {
    auto const begin = [&](int step, int stage) {
      a_words.begin_load(group, staged.a[stage], at.row, step * depth);
      b_words.begin_load(group, staged.b[stage], at.column, step * depth);
    };
    auto const steps = static_cast<int>(divide_up(b.columns(), depth));
    for (pipeline_step const step : pipelined<stages>(group, steps, begin)) {
      multiply_staged<M>(group, staged.a[step.stage], staged.b[step.stage], sums);
    }
  });
}

}  // namespace v0
}  // namespace tessera
