// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Adds a number to each column of a warp's sums, say a bias. The sums are laid out as in warpgroup_mma.cuh.
///
///     std::int32_t const own = first + 2 * (lane % 4);                              // the lane's first column
///     add_to_columns(sums, [&](std::int32_t further) { return bias[own + further]; });
///
/// The numbers are read 64 columns at a time, because there are no registers for all of them.
#pragma once

#include <cstdint>

#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// Adds number_of(column) to each sum of a column, for the columns of this thread's sums of a warpgroup_mma.
template <int Registers, class NumberOf>
__device__ __forceinline__ void add_to_columns(float (&sums)[Registers], NumberOf const& number_of) {
#pragma unroll
  for (int i = 0; i < Registers; i += 4) {
    if (i % 32 == 0) {
      sync_warp();  // the compiler moves no reads from after this to before it
    }
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float const number = number_of(i / 4 * 8 + side);
      sums[i + side] += number;
      sums[i + 2 + side] += number;
    }
  }
}

}  // namespace v0
}  // namespace tessera
