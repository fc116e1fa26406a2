// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `row_floats`: a number for each row of a lane in products by mma.sync: two rows in each 16, 8 rows apart.
#pragma once

#include <type_traits>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Tiles: how many times 16 rows a warp has.
template <int Tiles>
struct row_floats {
  float of[Tiles][2];  ///< by tiles of 16 rows, and by halves of these

  /// Multiplies sums, four of each 8 columns, by the numbers of their rows.
  template <class Sums>
  __device__ __forceinline__ void scale(Sums& sums) const {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (auto& column : sums.values[tile]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          column[i] *= of[tile][i / 2];
        }
      }
    }
  }
  /// Multiplies totals by the numbers of their rows, and adds sums to them.
  template <class Sums>
  __device__ __forceinline__ void scale_and_add(Sums& totals, Sums const& sums) const {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int column = 0; column < static_cast<int>(std::extent_v<decltype(Sums::values), 1>); ++column) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& total = totals.values[tile][column][i];
          total = __fmaf_rn(total, of[tile][i / 2], sums.values[tile][column][i]);
        }
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
