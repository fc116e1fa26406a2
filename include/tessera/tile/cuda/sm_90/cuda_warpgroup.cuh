// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `cuda_warpgroup`: the group of four neighbouring warps of a thread block, which work together while the other warps
/// do something else: a TileSource loads for it as for a block (sm_90).
///
///     cuda_warpgroup const producers(0, 1);      // warps 0 to 3, which meet at named barrier 1
///     source.load(producers, tile, first_row, first_column);
///
/// It has no collectives: no shared memory is set aside for them.
#pragma once

#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/status.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/thread_index.cuh>

namespace tessera {
inline namespace v0 {

/// The group of four warps of an architecture.
template <architecture Compiled>
struct cuda_warpgroup_on {
  static constexpr int size = 4 * lanes_in_a_warp;
  static constexpr tessera::architecture architecture = Compiled;
  static constexpr int lanes_here = 1;
  [[nodiscard]] static TESSERA_FN constexpr int slot(int) { return 0; }

  int lane;     ///< the thread's number in the warpgroup
  int barrier;  ///< the named barrier at which its warps meet: 1 to 15

  /// Makes the group of the block's warpgroup number `which`.
  __device__ __forceinline__ cuda_warpgroup_on(int which, int named_barrier)
      : lane(static_cast<int>(thread_index()) - which * size), barrier(named_barrier) {}
  [[nodiscard]] __device__ __forceinline__ own_lane_iterator begin() const { return {lane, false}; }
  [[nodiscard]] __device__ __forceinline__ own_lane_iterator end() const { return {lane, true}; }
  /// What lanes of the warpgroup wrote before this call, all of them see after it.
  __device__ __forceinline__ void sync() const { sync_named(barrier, size); }
  template <class T>
  __device__ __forceinline__ T atomic_add(T& target, std::type_identity_t<T> value) const {
    return detail::atomic_add_on_device(target, value);
  }
  __device__ __forceinline__ void report(status_word* word, status_code code, std::int64_t position,
                                         status_detail detail = {}) const {
    tessera::detail::report_on_device(word, code, position, detail);
  }
};

/// The group of four warps where this code is compiled.
using cuda_warpgroup = cuda_warpgroup_on<detail::compiled_architecture>;

}  // namespace v0
}  // namespace tessera
