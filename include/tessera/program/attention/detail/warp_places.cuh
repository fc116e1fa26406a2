// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `warp_places`: where a lane's rows and scores are in forward_by_warps, whose warps have whole rows of a product by
/// mma.sync.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Tiles: how many times 16 rows a warp has. SetRows: rows of a thread block that it has scores of at a time.
template <int Tiles, int SetRows>
struct warp_places {
  /// The row of a lane: that of lane / 4 in 16, or 8 further.
  __device__ __forceinline__ static int row_of(unsigned lane, int tile, int half, int set) {
    return set * SetRows + static_cast<int>(lane / 32U * (16U * Tiles) + lane % 32U / 4U) + 16 * tile + 8 * half;
  }
  /// Calls function(tile, half) for the lane's rows.
  template <class Function>
  __device__ __forceinline__ static void each_row(Function const& function) {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        function(tile, half);
      }
    }
  }
  /// The column of score number `i` of a row.
  __device__ __forceinline__ static int column_of(unsigned lane, int i) {
    return i / 2 * 8 + static_cast<int>(lane % 4U * 2U) + i % 2;
  }
  /// A score of a row, whose bits are a float's. Sums: those of a row_tile of integers.
  template <class Sums>
  __device__ __forceinline__ static float score(Sums const& sums, int tile, int half, int i) {
    return bit_cast<float>(sums.values[tile][i / 2][2 * half + i % 2]);
  }
  template <class Sums>
  __device__ __forceinline__ static void set_score(Sums& sums, int tile, int half, int i, float value) {
    sums.values[tile][i / 2][2 * half + i % 2] = bit_cast<std::int32_t>(value);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
