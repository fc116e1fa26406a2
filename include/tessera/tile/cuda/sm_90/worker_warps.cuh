// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `worker_warps`: a warp-specialised block: some warps work, and one more loads their data by TMA. It has the
/// beginning of such a block, and the barriers at which warps meet.
///
///     using block_warps = worker_warps<4>;                // the program's lanes are block_warps::lanes
///     auto const own = block_warps::of(group);
///     own.begin([&] { init_barriers(scratch); });
///     if (own.warp < 4) {
///       block_warps::wait_for_barriers();
///       work(scratch, own.warp, own.lane);
///     } else {
///       load(scratch, own.lane);
///     }
#pragma once

#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>

namespace tessera {
inline namespace v0 {

template <int Workers>
struct worker_warps {
  static constexpr int worker_lanes = 32 * Workers;  ///< lanes of the warps that work
  static constexpr int lanes = worker_lanes + 32;    ///< lanes of the block

  int warp;  ///< index of the warp in the block; workers are 0 to Workers - 1
  int lane;  ///< index of the lane in the warp

  /// The warp and the lane of this thread.
  [[nodiscard]] __device__ __forceinline__ static worker_warps of(cuda_block<lanes> const& group) {
    return {__shfl_sync(0xffffffffU, group.lane / 32, 0), group.lane % 32};
  }

  /// Begins the block; all lanes call it first. One lane of the warp that loads calls `init_barriers`, which ends with
  /// fence_barrier_init, while earlier kernels of the stream may still run. What these kernels wrote can be read from
  /// here on.
  template <class InitBarriers>
  __device__ __forceinline__ void begin(InitBarriers const& init_barriers) const {
    if (warp == Workers) {
      if (lane == 0) {
        init_barriers();
      }
      __syncwarp();
      arrive_named(begin_barrier, lanes);
    }
    let_next_kernel_start();
    wait_for_stream();
  }

  /// Workers call it once, before they wait for data: barriers can be waited for from here on.
  __device__ __forceinline__ static void wait_for_barriers() { sync_named(begin_barrier, lanes); }
  /// Makes workers wait for each other.
  __device__ __forceinline__ static void sync() { sync_named(workers_barrier, worker_lanes); }
  /// Says that a worker has read the data that `barrier` guards: one of its lanes arrives there.
  __device__ __forceinline__ static void release(shared_barrier& barrier, int lane) {
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) {
      barrier.arrive();
    }
  }
  /// Says that a worker has read the data that `barrier` guards: its first `readers` lanes, which are those that have
  /// read, arrive there.
  __device__ __forceinline__ static void release(shared_barrier& barrier, int lane, int readers) {
    fence_async_proxy();
    __syncwarp();
    if (lane < readers) {
      barrier.arrive();
    }
  }

 private:
  static constexpr int workers_barrier = 1;
  static constexpr int begin_barrier = 2;
};

}  // namespace v0
}  // namespace tessera
