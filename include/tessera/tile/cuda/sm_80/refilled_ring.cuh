// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Loops over rings whose lanes fill by cp.async the stages that they read themselves (sm_80 and later).
/// `ring_refiller` of tile/pipelined.hpp is a side of a pipelined loop (tile/cuda/sm_90/pipelined_ring.cuh). A stage
/// is filled again at the end of the step that has read it, with what comes as many steps later as there are stages.
/// So all other stages are on their way during a step, one stage is enough where other work follows, and several
/// loops share a ring, which is never empty between them.
///
///     int stage = 0;                                                       // goes on from loop to loop
///     auto const fill = [&](int into) { copy_next(scratch.boxes[into]); };  // nothing beyond the last step
///     ring_refiller<4, cuda_warp, decltype(fill)> const ring(warp, stage, fill);
///     ring.fill_all();
///     for (pipeline_step const at : pipelined(ring, {first, end, by})) {
///       multiply(scratch.boxes[at.stage]);
///     }
///
/// `pipelined(group, steps, begin)` (tile/pipelined.hpp) is for loops that have their ring alone: it waits once in a
/// step, not twice, has one stage less on its way, and drains it at the end. gemm_few_rows_scaled by it, with one stage
/// more, took 18.7, 19.1 and 20.8 us on an H200 for the cases in tuning/gemm/linear.hpp (1 x 8192 x 8192, 16 x 8192 x
/// 8192, 16 x 4096 x 14336; codes of 4 bits), and 14.6, 17.1 and 18.5 by this ring.
///
/// Two rings whose steps are taken in turns, each of so many stages, have twice as many batches of copies on their way.
/// Then begin_step() and end_step() are called for each of them, and fill() for the first stages:
///
///     pipeline_step const at = keys.begin_step(index);   // waits for keys alone
///     weigh(scratch.boxes[at.stage]);
///     keys.end_step();                                   // other keys are on their way from here on
///     add(scratch.boxes[values.begin_step(index).stage]);
///     values.end_step();
///
/// Where the lanes are those of a thread block, a sync costs more than a stage. There a `late_refiller` fills a
/// stage again at the beginning of the step behind the one that has read it: it has one sync for each step, and all
/// stages but two on their way.
///
/// Where warps are to drift apart, there is no sync: lanes wait by the barriers of a stage_ring, also of several ones
/// in the same steps, for a stage that is full, and, where they fill one, for all that have read it. A step of a
/// `refilling_reader` knows the later ones: `fills_later` and `reads_later`.
///
///     stage_ring<4> ring;                                   // in scratch
///     ring.init(lanes, lanes);                              // by one lane, before all sync
///     auto const fill = [&](fill_step<4> const& at) {
///       shared_barrier& full = at.when_empty(ring);
///       copy_next(scratch.boxes[at.stage]);
///       full.arrive_after_copies();
///     };
///     for (fill_step<4> const at : pipelined(ring_filler(ahead), 3)) {
///       fill(at);
///     }
///     for (read_step<4> const at : pipelined(refilling_reader(state), steps)) {
///       fill(fills_later<3>(at));                           // nothing beyond the last step
///       shared_barrier& is_read = at.when_full(ring);
///       release_for_lane{}(is_read, multiply(scratch.boxes[at.stage]));
///     }
///
/// forward_by_warps has such loops, over a ring of keys and one of values. sm_80's code on an H200, TFLOP/s over codes
/// (causal), in turns with a loop by hand in which one lane arrived for its warp; results have the same bits:
///
///     16K tokens                               by hand      by this word    4K tokens, ratio
///     64 channels, values widened once         371 (328)    366 (322)       .99
///     64 channels, widened by blocks           356 (313)    351 (309)       .99
///     the same with a linear_bias              308 (271)    317 (279)       1.02
///     128 channels, one set, widened once      410 (379)    410 (379)       1.01
///     128 channels, two sets, widened once     415 (351)    430 (358)       1.10
///     128 channels, two sets, by blocks        396 (330)    388 (324)       .98
///
/// multiply_swizzled (swizzled_ring.cuh) has such a loop, too.
#pragma once

#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/sm_80/refilled_stages.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/pipelined.hpp>

namespace tessera {
inline namespace v0 {

/// The side of lanes that fill stages while they read others: a late_reader that goes on by what its steps have
/// computed for later ones, which takes fewer instructions than pipeline_state::advance() or a pipeline_count.
template <int Stages>
class refilling_reader {
 public:
  /// Goes on from a state, which it changes.
  __device__ __forceinline__ explicit refilling_reader(pipeline_state<Stages>& state) : state_(state) {}

  /// The step, whose stage has not been waited for.
  [[nodiscard]] __device__ __forceinline__ read_step<Stages> begin_step(int index) const {
    return {{index, state_.stage}, state_};
  }
  /// Goes on behind the step.
  __device__ __forceinline__ void end_step(int, int by) const {
    if (by == 1) {
      state_ = state_.template later<1>();
    } else {
      state_.skip(by);
    }
  }

 private:
  pipeline_state<Stages>& state_;
};

/// The step `Later` steps after one that reads, as one that reads.
template <int Later, int Stages>
[[nodiscard]] __device__ __forceinline__ read_step<Stages> reads_later(read_step<Stages> const& at) {
  pipeline_state<Stages> const then = at.state.template later<Later>();
  return {{at.index + Later, then.stage}, then};
}
/// The same as a step that fills.
template <int Later, int Stages>
[[nodiscard]] __device__ __forceinline__ fill_step<Stages> fills_later(read_step<Stages> const& at) {
  pipeline_state<Stages> const then = at.state.template later<Later>();
  return {{at.index + Later, then.stage}, then};
}

}  // namespace v0
}  // namespace tessera
