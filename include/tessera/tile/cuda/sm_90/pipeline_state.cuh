// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `pipeline_state`: the state of a pipeline in shared memory: the stage at which a producer or a consumer is, and the
/// parity of that stage's barriers (barrier.cuh). Producers and consumers each have one and count in the same way.
///
///     pipeline_state<4> state;
///     full[state.stage].wait(state.phase);          // a consumer; a producer waits for empty[] and the other parity
///     state.advance();
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

template <int Stages>
struct pipeline_state {
  static constexpr int stages = Stages;  ///< how many stages there are

  int stage = 0;       ///< pipeline stage, 0 to Stages - 1
  unsigned phase = 0;  ///< parity of the stage's barrier

  /// The state after so many stages.
  [[nodiscard]] __device__ __forceinline__ static pipeline_state after(std::int32_t pieces) {
    pipeline_state state;
    state.skip(pieces);
    return state;
  }
  /// The state so many stages later, at most as many as there are.
  template <int Later>
  [[nodiscard]] __device__ __forceinline__ pipeline_state later() const {
    static_assert(Later <= Stages, "tessera: a pipeline_state is later by at most as many stages as there are");
    bool const turns = stage >= Stages - Later;
    return {turns ? stage + Later - Stages : stage + Later, turns ? phase ^ 1U : phase};
  }
  /// Goes on to the next stage.
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1;
    }
  }
  /// Goes on by so many stages at once.
  __device__ __forceinline__ void skip(std::int32_t pieces) {
    std::int32_t const beyond = stage + pieces;
    phase ^= static_cast<unsigned>(beyond / Stages) & 1U;
    stage = beyond % Stages;
  }
  /// Goes on by so many stages, where the compiler may know that it is one.
  __device__ __forceinline__ void go_on(std::int32_t pieces) {
    if (pieces == 1) {
      advance();
    } else {
      skip(pieces);
    }
  }
  /// Takes lane 0's state for all lanes of a warp, so that descriptors can be kept in the warp's uniform registers.
  __device__ __forceinline__ void agree() {
    stage = __shfl_sync(0xffffffffU, stage, 0);
    phase = __shfl_sync(0xffffffffU, phase, 0);
  }
};

}  // namespace v0
}  // namespace tessera
