// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `stage_ring`: the barriers of a ring of stages in shared memory, which some warps fill and others read. Each side
/// has a pipeline_state, which counts in the same way. Loops over steps are pipelined_ring.cuh's; by hand, for stages
/// that come one at a time:
///
///     stage_ring<4> ring;                                    // in scratch; one thread calls init(), then fences
///     // who fills:
///     shared_barrier& full = ring.await_empty(state);        // the stage was read by all
///     load_box(scratch.boxes[state.stage], map, full, at);   // bytes arrive at `full`, or threads do
///     state.advance();
///     // who reads:
///     ring.await_full(state);
///     multiply(scratch.boxes[state.stage]);
///     ring.empty[state.stage].arrive_for_warp();
///     state.advance();
///
/// For a stage that was never filled await_empty() does not wait.
#pragma once

#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>

namespace tessera {
inline namespace v0 {

template <int Stages>
struct stage_ring {
  shared_barrier full[Stages];   ///< completes when a stage has been filled
  shared_barrier empty[Stages];  ///< completes when all have read a stage

  /// Says how many arrivals fill a stage, and how many leave it empty.
  __device__ __forceinline__ void init(int fills, int releases) {
    for (int stage = 0; stage < Stages; ++stage) {
      full[stage].init(fills);
      empty[stage].init(releases);
    }
  }
  /// Waits until the stage at `state` may be filled. Returns the barrier that completes when it has been.
  __device__ __forceinline__ shared_barrier& await_empty(pipeline_state<Stages> const& state) {
    empty[state.stage].wait(state.phase ^ 1);
    return full[state.stage];
  }
  /// Waits until the stage at `state` has been filled.
  __device__ __forceinline__ void await_full(pipeline_state<Stages> const& state) {
    full[state.stage].wait(state.phase);
  }
};

}  // namespace v0
}  // namespace tessera
