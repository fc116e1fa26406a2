// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `ring_refiller` and `late_refiller` (tile/pipelined.hpp) for groups of CUDA threads: all of a step is inlined, and
/// first stages are filled by one loop where they are many.
///
/// They stand beside those of tile/pipelined.hpp since nvcc 13.0, which unrolls and inlines these as it likes, makes
/// other code of them: 4 % more lines of PTX for the test of score_chunks, and others for gemm_few_rows_scaled.
#pragma once

#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/pipelined.hpp>

namespace tessera {
inline namespace v0 {

/// The lanes of a warp or a thread block.
template <int Stages, CudaLanes G, class Fill, int Rings>
class ring_refiller<Stages, G, Fill, Rings> {
 public:
  static constexpr int stages = Stages;  ///< how many stages the ring has

  /// Goes on from a stage, which it changes. The group and `fill` outlive it.
  __device__ __forceinline__ ring_refiller(G const& group, int& stage, Fill const& fill)
      : group_(group), stage_(stage), fill_(fill) {}

  /// Begins to fill a stage: each of them before the first step, in their order.
  __device__ __forceinline__ void fill(int stage) const {
    fill_(stage);
    async_copy_commit();
  }
  /// Begins to fill all stages.
  __device__ __forceinline__ void fill_all() const {
#pragma unroll
    for (int stage = 0; stage < Stages; ++stage) {
      fill(stage);
    }
  }
  /// Waits until the step's stage is full.
  [[nodiscard]] __device__ __forceinline__ pipeline_step begin_step(int index) const {
    async_copy_wait<Rings * Stages - 1>();
    group_.sync();
    return {index, stage_};
  }
  /// Begins to fill the stage that all lanes have read, and goes on behind the step.
  __device__ __forceinline__ void end_step(int = 0, int = 1) const {
    group_.sync();
    fill(stage_);
    stage_ = stage_ + 1 == Stages ? 0 : stage_ + 1;
  }

 private:
  G const& group_;
  int& stage_;
  Fill const& fill_;
};

/// The lanes of a warp or a thread block.
template <int Stages, CudaLanes G, class Fill>
class late_refiller<Stages, G, Fill> {
 public:
  static_assert(Stages >= 2, "tessera: a late_refiller has at least two stages: one is read while another is filled");
  static constexpr int stages = Stages;  ///< how many stages the ring has

  /// Begins with stage 0. The group and `fill` outlive it.
  __device__ __forceinline__ late_refiller(G const& group, Fill const& fill) : group_(group), fill_(fill) {}

  /// Begins to fill all stages but the last, which the first step does.
  __device__ __forceinline__ void fill_all() {
#pragma unroll 1
    for (int i = 1; i < Stages; ++i) {
      fill_next();
    }
  }
  /// Waits until the step's stage is full, and begins to fill that of the step before, which all lanes have read.
  [[nodiscard]] __device__ __forceinline__ pipeline_step begin_step(int index) {
    async_copy_wait<Stages - 2>();
    group_.sync();
    fill_next();
    return {index, stage_};
  }
  /// Goes on behind the step.
  __device__ __forceinline__ void end_step(int, int) {
    stage_ = after(stage_);
  }

 private:
  __device__ __forceinline__ static int after(int stage) {
    return stage + 1 == Stages ? 0 : stage + 1;
  }
  __device__ __forceinline__ void fill_next() {
    fill_(next_);
    async_copy_commit();
    next_ = after(next_);
  }

  G const& group_;
  Fill const& fill_;
  int stage_ = 0;  ///< which is read next
  int next_ = 0;   ///< which is filled next
};

}  // namespace v0
}  // namespace tessera
