// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `few_rows_sums`: the sums of a thread block's warps, each of a part of the depth, which are added in shared memory:
/// the end of gemm_few_rows and of gemm_few_rows_scaled.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// Warps: those that share the depth. Rows: rows of the weights, those of the instruction's first operand. Tokens: rows
/// of the inputs, the columns of its second.
template <int Warps, int Rows, int Tokens>
struct few_rows_sums {
  static constexpr int apart = Rows + 4;  ///< so that lanes write to different banks

  float values[Warps][Tokens][apart];  ///< of each warp's part of the depth

  /// Writes a warp's sums of 16 * M rows from row `first` of the block on, as mma.sync left them in its lanes.
  template <int M>
  __device__ __forceinline__ void keep(int warp, int first, int lane, float const (&sums)[M][Tokens / 8][4]) {
    float(&to)[Tokens][apart] = values[warp];
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int n = 0; n < Tokens / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          to[8 * n + 2 * (lane % 4) + i % 2][first + 16 * m + lane / 4 + i / 2 * 8] = sums[m][n][i];
        }
      }
    }
  }
  /// Rows from `begin` to `end` - 1.
  struct row_range {
    std::int64_t begin;  ///< the first row
    std::int64_t end;    ///< one past the last row
  };
  /// Adds the warps' sums, in the order of warps, and hands those of tokens and rows that are `wanted` to the epilogue.
  /// All `Lanes` lanes of the block call it after a sync that follows keep(). The block begins at row `first_row`.
  template <int Lanes, class Epilogue>
  __device__ __forceinline__ void finish(int lane, std::int64_t first_row, row_range wanted, std::int64_t tokens,
                                         Epilogue const& epilogue) const {
    for (int i = lane; i < Tokens * Rows; i += Lanes) {
      int const token = i / Rows;
      int const row = i % Rows;
      if (token < tokens && first_row + row >= wanted.begin && first_row + row < wanted.end) {
        float sum = values[0][token][row];
#pragma unroll
        for (int warp = 1; warp < Warps; ++warp) {
          sum += values[warp][token][row];
        }
        epilogue(token, first_row + row, sum);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
