// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Reduces a row of the sums that a warp holds after wgmma, by any Reducer, without leaving the registers.
///
///     // in an epilogue of gemm_on_warpgroups: the log-sum-exp of 256 scores for each of two rows
///     auto const upper = reduce_row<0>(lse_reducer<float>{}, sums, columns_left);
///     auto const lower = reduce_row<1>(lse_reducer<float>{}, sums, columns_left);
#pragma once

#include <tessera/concepts/reducer.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {

/// Row lane / 4 + 8 * Half of the warp's 16; columns from `columns` on are left out. All four lanes of the row get the
/// state. Each lane pushes its columns in order, then lanes merge as neighbours, then as pairs: the same each time.
template <int Half, Reducer R, class Sum, int Registers>
[[nodiscard]] __device__ __forceinline__ typename R::state_type reduce_row(R const& reducer,
                                                                           Sum const (&sums)[Registers], int columns) {
  int const lane = static_cast<int>(threadIdx.x % 32);
  int const first = 2 * (lane % 4);
  typename R::state_type state = reducer.identity();
#pragma unroll
  for (int i = 0; i < Registers / 2; ++i) {
    if (i / 2 * 8 + first + i % 2 < columns) {
      reducer.push(state, static_cast<typename R::input_type>(sums[i / 2 * 4 + 2 * Half + i % 2]));
    }
  }
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    typename R::state_type other = detail::move_words(state, detail::across{distance});
    if ((lane & distance) != 0) {  // the lower lane's state comes first for both
      reducer.merge(other, state);
      state = other;
    } else {
      reducer.merge(state, other);
    }
  }
  return state;
}

}  // namespace v0
}  // namespace tessera
