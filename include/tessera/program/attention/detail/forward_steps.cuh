// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What a consumer warpgroup of warpgroup_attention does in each step, whatever it makes of scores: it passes over
/// tiles, and a lane finds the scale and the limits of its scores.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/detail/key_limits.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_rows.cuh>
#include <tessera/tile/cuda/thread_index.cuh>

namespace tessera {
inline namespace v0 {

/// Reads steps of one ring in which keys and values arrive together, and are released together, by each lane at the end
/// of a step. It has the members of a pair_reader, which reads them from two rings.
template <int Stages>
class joined_reader {
 public:
  /// Goes on from a state, which it changes. The second ring is not used.
  __device__ __forceinline__ joined_reader(stage_ring<Stages>& ring, stage_ring<Stages>&, pipeline_state<Stages>& state)
      : ring_(ring), state_(state) {}

  /// Waits until the step's stage is full.
  [[nodiscard]] __device__ __forceinline__ pipeline_step begin_step(int index) const {
    ring_.await_full(state_);
    return {index, state_.stage};
  }
  /// Does nothing: release_second() has ended the step.
  __device__ __forceinline__ void end_step(int, int) const {}
  /// Does nothing.
  template <class... Read>
  __device__ __forceinline__ void release_first(Read const&...) const {}
  /// The number of the stage, whose values are there.
  [[nodiscard]] __device__ __forceinline__ int await_second() const { return state_.stage; }
  /// Releases the stage, of which all lanes have what they have read.
  __device__ __forceinline__ void release_second() const {
    ring_.empty[state_.stage].arrive();
    state_.advance();
  }

 private:
  stage_ring<Stages>& ring_;
  pipeline_state<Stages>& state_;
};

/// Releases the stages of a step that only other rows of the block need. Reader: a pair_reader.
template <class Reader>
__device__ __forceinline__ void pass_over(Reader const& reads) {
  reads.release_first();
  static_cast<void>(reads.await_second());
  reads.release_second();
}
/// Passes over so many tiles.
template <class Reader>
__device__ __forceinline__ void pass_over(Reader const& reads, std::int32_t tiles) {
  for (pipeline_step const at : pipelined(reads, steps_from_last{0, tiles})) {
    static_cast<void>(at);
    pass_over(reads);
  }
}

/// Passes over a step of lists that only other warpgroups take, at `at` in both rings. Its values are there when its
/// keys are.
template <class Reader, int Stages>
__device__ __forceinline__ void pass_over_listed(Reader const&, stage_ring<Stages>& keys, stage_ring<Stages>& values,
                                                 pipeline_state<Stages>& at) {
  keys.await_full(at);
  keys.empty[at.stage].arrive_for_warp(32);
  values.empty[at.stage].arrive_for_warp(1);
  at.advance();
}
/// The same where keys and values have one ring.
template <int Stages>
__device__ __forceinline__ void pass_over_listed(joined_reader<Stages> const& reads, stage_ring<Stages>&,
                                                 stage_ring<Stages>&, pipeline_state<Stages>&) {
  static_cast<void>(reads.begin_step(0));
  reads.release_second();
}

/// The keys of a tile that the lane's rows see. Work: attention_pipeline's warp_work_item.
template <tile_mask Mask, class Work>
__device__ __forceinline__ key_limits limits_in_tile(Work const volatile& work, std::int32_t tile) {
  if constexpr (Mask == tile_mask::none) {
    return {};
  } else {
    return key_limits::of(warpgroup_lane::in_warp(thread_index_here()), work.low, work.high, work.keys,
                          tile * attention_tile_keys);
  }
}

/// The scales of a lane's scores: those of its rows and those of its keys.
struct lane_scales_read {
  float of_queries;  ///< the rows' scale
  float of_keys;     ///< the keys' scale

  /// The factor that turns scores into logits.
  [[nodiscard]] __device__ __forceinline__ float product() const { return of_queries * of_keys; }
  /// The same, which is not computed before `score` is there. ptxas would wait for the scales between the products
  /// otherwise, of which the last would begin too late. `is_never` is false, but the compiler does not know that.
  template <class Score>
  [[nodiscard]] __device__ __forceinline__ float behind(Score score, bool is_never) const {
    return of_queries * (is_never ? bit_cast<float>(score) : of_keys);
  }
};
/// Reads the scales of a lane's scores.
__device__ __forceinline__ lane_scales_read scales_of_lane(float const* of_queries, float const* of_keys) {
  unsigned const index = thread_index_here();
  return {of_queries[index / 4], of_keys[index % 4]};
}
/// The same where the scale of its rows is known.
__device__ __forceinline__ lane_scales_read scales_of_lane(float of_queries, float const* of_keys) {
  return {of_queries, of_keys[thread_index_here() % 4]};
}
/// The factor that turns the lane's scores into logits, by the scales of rows and those of a tile's keys.
__device__ __forceinline__ float scale_of_lane(float const* of_queries, float const* of_keys) {
  return scales_of_lane(of_queries, of_keys).product();
}

}  // namespace v0
}  // namespace tessera
