// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `multiply_staged<M>`: adds the product a b^T of two tiles in scratch to the sums of a TileMma.
///
///     using M = gemm_tile<bfloat16, shape<64, 64, 16>, Group>;
///     multiply_staged<M>(group, scratch.a, scratch.b, sums);    // each a staged_tile<bfloat16, 64, 32>
#pragma once

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// All lanes reach this call, after a sync that follows the writes to both tiles. a: M::rows rows; b: M::columns rows,
/// the columns of the product; both have the depth as columns, a multiple of M::depth. Products are added from the
/// first to the last column.
template <TileMma M, class A, class B>
TESSERA_FN void multiply_staged(typename M::group_type const& group, A const& a, B const& b,
                                typename M::sum_tile& sums) {
  static_assert(A::rows == M::rows && B::rows == M::columns && A::columns == B::columns && A::columns % M::depth == 0,
                "tessera: staged tiles have the extents of the product, and a whole number of its depths");
  for (int at = 0; at < A::columns; at += M::depth) {
    typename M::a_tile a_tile;
    typename M::b_tile b_tile;
    M::load_a(group, a_tile, a.values + at, A::stride);
    M::load_b_transposed(group, b_tile, b.values + at, B::stride);
    M::multiply(group, a_tile, b_tile, sums);
  }
}

}  // namespace v0
}  // namespace tessera
