// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `multiply_sums<M, Next>`: adds the product of a RowTile's sums, rounded to the next product's type, and a tile in
/// scratch to the next product's sums. The sums pass no scratch.
///
///     using scores = row_tile<bfloat16, shape<64, 128, 16>, Group>;
///     using results = row_tile<bfloat16, shape<64, 64, 16>, Group>;
///     multiply_sums<scores, results>(group, weights, scratch.values, totals);   // a staged_tile<bfloat16, 128, 64>
///
/// `multiply_sums_transposed` does so for tiles whose rows are the columns of the next products. Sums become operands
/// once for all of them, and take half of the registers from then on.
///
///     operands_of_sums<scores, results> operands;
///     operands.make(group, weights);
///     multiply_sums_transposed(group, operands, values, 2, totals);           // each a staged_tile<bfloat16, 64, 128>
#pragma once

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/config.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/tile/multiply_staged.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The product of the sums from column `First` on.
template <class M, class Next, int First, class B>
TESSERA_FN void multiply_sums_from(typename M::group_type const& group, typename M::sum_tile const& sums, B const& b,
                                   typename Next::sum_tile& totals) {
  if constexpr (First < M::columns) {
    typename Next::a_tile a_tile;
    typename Next::b_tile b_tile;
    M::template as_operand<Next, First>(group, sums, a_tile);
    load_b_of<Next>(group, b_tile, b, First);
    Next::multiply(group, a_tile, b_tile, totals);
    multiply_sums_from<M, Next, First + Next::depth>(group, sums, b, totals);
  }
}

}  // namespace detail

/// All lanes reach this call, after a sync that follows the writes to the tile. b: M::columns rows of Next::columns
/// elements. Products are added from the first to the last of M's columns.
template <RowTile M, TileMma Next, class B>
TESSERA_FN void multiply_sums(typename M::group_type const& group, typename M::sum_tile const& sums, B const& b,
                              typename Next::sum_tile& totals) {
  static_assert(B::rows == M::columns && B::columns == Next::columns && M::columns % Next::depth == 0,
                "tessera: the staged tile has the extents of the product, and a whole number of its depths");
  detail::multiply_sums_from<M, Next, 0>(group, sums, b, totals);
}

/// The left operands of the next product that all columns of M's sums become, in the order of columns. Next: a TileMma,
/// or a warpgroup_mma for sums of wgmma (tile/cuda/sm_90/warpgroup_rows.cuh).
template <RowWords M, class Next>
struct operands_of_sums {
  static constexpr int steps = M::columns / Next::depth;  ///< how many tiles of operands they are
  static_assert(steps * Next::depth == M::columns, "tessera: sums have a whole number of the next product's depths");
  typename Next::a_tile of_step[steps];  ///< the tiles

  /// Rounds the sums, or packs them by a function that M's as_operand takes.
  template <class... Pack>
  TESSERA_FN void make(typename M::group_type const& group, typename M::sum_tile const& sums, Pack const&... pack) {
    each_constant<steps>([&, this](auto step) {
      M::template as_operand<Next, step.value * Next::depth>(group, sums, of_step[step.value], pack...);
    });
  }
};

/// All lanes reach this call, after a sync that follows the writes to the tiles. b: tiles of Next::columns rows of
/// M::columns elements, of which the first `parts` are multiplied, at most Parts. Products are added from the first to
/// the last of M's columns.
template <RowTile M, TileMma Next, class B, int Parts>
TESSERA_FN void multiply_sums_transposed(typename M::group_type const& group, operands_of_sums<M, Next> const& sums,
                                         B const (&b)[Parts], int parts, typename Next::sum_tile (&totals)[Parts]) {
  static_assert(B::rows == Next::columns && B::columns == M::columns,
                "tessera: the staged tiles have the extents of the product");
  each_constant<operands_of_sums<M, Next>::steps>([&](auto step) {
    each_constant<Parts>([&](auto part) {
      if (part.value < parts) {
        typename Next::b_tile b_tile;
        detail::load_b_transposed_of<Next>(group, b_tile, b[part.value], step.value * Next::depth);
        Next::multiply(group, sums.of_step[step.value], b_tile, totals[part.value]);
      }
    });
  });
}

}  // namespace v0
}  // namespace tessera
