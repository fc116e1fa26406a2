// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `kept_queries`: a warp's queries in the registers of the lanes that multiply them, for forward_by_warps. They come
/// by way of the second stage of keys, which is free until the first tile's scores are made, and so take no shared
/// memory of their own: with 128 channels and one set that saves 18 KiB, and four loads a tile, for 16 registers of a
/// lane.
///
/// `staged_queries`: queries in shared memory, from which warps load them for each tile of keys.
#pragma once

#include <tessera/core/with_constant.hpp>
#include <tessera/tile/multiply_staged.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Queries in shared memory. Tile: a staged_tile of the codes of a set.
template <class Tile, int Sets>
struct staged_queries {
  struct scratch_type {
    Tile q[Sets];  ///< codes of queries
  };
};

/// Queries of one set in registers. Scores: their product with a tile of keys. Tile: a staged_tile of their codes.
template <class Scores, class Tile>
struct kept_queries {
  struct scratch_type {};
  using group_type = typename Scores::group_type;
  static constexpr int steps = Tile::columns / Scores::depth;  ///< operands along the depth

  typename Scores::a_tile of_step[steps];  ///< those of the warp

  /// Where the set is to be copied to, before a thread block's first tile of keys. Scratch: that of warp_operands.
  template <class Scratch>
  __device__ __forceinline__ static Tile& place(Scratch& scratch) {
    return scratch.k[1];
  }
  /// Loads the queries, when the lane's copies of them have come. From then on their place may be filled.
  template <class Scratch>
  __device__ __forceinline__ void keep(group_type const& group, Scratch& scratch) {
    group.sync();
    each_constant<steps>(
        [&](auto step) { load_a_of<Scores>(group, of_step[step.value], place(scratch), step.value * Scores::depth); });
    group.sync();
  }
  /// Adds the products of the queries and a tile of keys.
  template <class Keys>
  __device__ __forceinline__ void multiply(group_type const& group, Keys const& keys,
                                           typename Scores::sum_tile& sums) const {
    each_constant<steps>([&](auto step) {
      typename Scores::b_tile b_tile;
      load_b_transposed_of<Scores>(group, b_tile, keys, step.value * Scores::depth);
      Scores::multiply(group, of_step[step.value], b_tile, sums);
    });
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
