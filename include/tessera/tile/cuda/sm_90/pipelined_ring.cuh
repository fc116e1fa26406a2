// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `pipelined` over a stage_ring: the model of tile/pipelined.hpp by mbarriers, for warps that have roles (sm_90). Some
/// warps run a loop that fills stages, while others run loops over the same steps that read them.
///
///     stage_ring<4> ring;         // in scratch, see stage_ring.cuh
///     pipeline_state<4> state;    // of each side; it goes on from loop to loop
///     // who fills:
///     for (fill_step<4> const at : pipelined(ring_filler(state), steps)) {
///       shared_barrier& full = at.when_empty(ring);
///       full.arrive_and_expect(bytes);
///       load_box(scratch.boxes[at.stage], map, full, place_of(at.index));
///     }
///     // who reads:
///     for (pipeline_step const at : pipelined(ring_reader(ring, state, release_for_warp{}), steps)) {
///       multiply(scratch.boxes[at.stage]);
///     }
///
/// Steps are a number, or a part of a longer row of steps, so that several loops can share a row, and warps can take
/// its steps in turns: {first, end} or {first, end, by} (step_range), or from the last to the first (steps_from_last).
///
/// A ring_reader's step is over at its end. A `product_reader` is for steps that commit multiplications of wgmma, which
/// go on behind it: at a step's end those of the step before are done, and its stage is released. A row of steps begins
/// with number 0 and ends with finish().
///
///     product_reader reads(ring, state, release_to_cluster<2>{});
///     for (pipeline_step const at : pipelined(reads, steps)) {
///       begin_multiply();
///       warpgroup_mma<bfloat16, 256>::multiply(sums, a[at.stage], b[at.stage], at.index > 0);
///       commit_multiply();
///     }
///     reads.finish(sums);         // all are done, and `sums` can be read
///
/// Where what fills a stage changes on the way, warps have it in registers in between, that of later steps as well:
/// each_fetched() runs the steps of a ring_filler so, by fetch(number of a step, registers), which starts to load, and
/// fill(step, registers), which waits for what was loaded and stores it.
///
///     fetched_tile in_flight[2];  // two steps are on their way
///     pipelined(ring_filler(state), {turn, steps, warpgroups}).each_fetched(
///         in_flight, [&](int step, fetched_tile& to) { source.fetch(group, to, first_row, step * depth); },
///         [&](fill_step<4> const& at, fetched_tile const& from) {
///           shared_barrier& full = at.when_empty(ring);
///           source.store(group, from, scratch.tiles[at.stage]);
///           full.arrive();
///         });
///
/// Laws, those of the other models: a step sees what was filled for it, and a stage is filled again only when all whom
/// ring.init() counts have released it; rows may have any number of steps.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/pipelined.hpp>

namespace tessera {
inline namespace v0 {

/// Steps `first`, `first + by`, ... below `end`. A step takes `by` stages of the ring, of which it uses the first.
struct step_range {
  int first;   ///< the first step
  int end;     ///< one past the last step
  int by = 1;  ///< steps, and stages, from a step to the next

  /// The first step.
  __device__ __forceinline__ int start() const { return first; }
  /// What is_before() compares with.
  __device__ __forceinline__ int stop() const { return end; }
  /// Whether a step is one of the range.
  __device__ __forceinline__ static bool is_before(int index, int stop) { return index < stop; }
  /// The step after another one.
  __device__ __forceinline__ int after(int index) const { return index + by; }
};
/// Steps `end` - 1 down to `begin`, each with a stage.
struct steps_from_last {
  static constexpr int by = 1;  ///< stages from a step to the next
  int begin;                    ///< the last step
  int end;                      ///< one past the first step

  /// The first step.
  __device__ __forceinline__ int start() const { return end - 1; }
  /// What is_before() compares with.
  __device__ __forceinline__ int stop() const { return begin; }
  /// Whether a step is one of the range.
  __device__ __forceinline__ static bool is_before(int index, int stop) { return index >= stop; }
  /// The step after another one.
  __device__ __forceinline__ int after(int index) const { return index - 1; }
};

/// A pipeline_state as the number of steps before it. It takes one register in place of two, and is divided in each
/// step.
template <int Stages>
struct pipeline_count {
  static constexpr int stages = Stages;  ///< how many stages the ring has
  std::int32_t steps = 0;                ///< how many steps there were

  /// The state after these steps.
  __device__ __forceinline__ operator pipeline_state<Stages>() const { return pipeline_state<Stages>::after(steps); }
  /// Goes on by so many stages.
  __device__ __forceinline__ void go_on(std::int32_t pieces) { steps += pieces; }
};

/// A step that fills stages.
template <int Stages>
struct fill_step : pipeline_step {
  pipeline_state<Stages> state;  ///< the stage, and the parity of the phase in which it is filled

  /// Waits until the step's stage of a ring may be filled. Returns the barrier that completes when it has been.
  [[nodiscard]] __device__ __forceinline__ shared_barrier& when_empty(stage_ring<Stages>& ring) const {
    return ring.await_empty(state);
  }
};

/// The side that fills the stages of a ring, or those of several rings in the same steps. State: a pipeline_state, or a
/// pipeline_count.
template <class State>
class ring_filler {
 public:
  /// Goes on from a state, which it changes.
  __device__ __forceinline__ explicit ring_filler(State& state) : state_(state) {}

  /// The step, of which no stage has been waited for.
  [[nodiscard]] __device__ __forceinline__ fill_step<State::stages> begin_step(int index) const {
    pipeline_state<State::stages> const state = state_;
    return {{index, state.stage}, state};
  }
  /// Goes on behind the step.
  __device__ __forceinline__ void end_step(int, int by) const { state_.go_on(by); }

 private:
  State& state_;
};

/// The step itself releases its stage, when it has read it.
struct release_in_step {
  /// Does nothing.
  __device__ __forceinline__ void operator()(shared_barrier&) const {}
};
/// The warp releases a stage that tensor cores have read.
struct release_for_warp {
  /// One lane of the warp arrives.
  __device__ __forceinline__ void operator()(shared_barrier& empty) const { empty.arrive_for_warp(); }
};
/// The warp releases a stage to those who fill it in all thread blocks of a cluster.
template <int Blocks>
struct release_to_cluster {
  /// Lanes of the warp arrive, one in each thread block.
  __device__ __forceinline__ void operator()(shared_barrier& empty) const {
    unsigned const lane = thread_index() % 32;
    if constexpr (Blocks == 1) {
      if (lane == 0) {
        empty.arrive();
      }
    } else if (lane < Blocks) {
      empty.arrive_at(lane);
    }
  }
};

/// The side that reads stages. Release: release(empty barrier of the stage), called at the end of a step.
template <int Stages, class Release = release_in_step>
class ring_reader {
 public:
  /// Goes on from a state, which it changes.
  __device__ __forceinline__ ring_reader(stage_ring<Stages>& ring, pipeline_state<Stages>& state,
                                         Release const& release = {})
      : ring_(ring), state_(state), release_(release) {}

  /// Waits until the step's stage is full.
  [[nodiscard]] __device__ __forceinline__ pipeline_step begin_step(int index) const {
    ring_.await_full(state_);
    return {index, state_.stage};
  }
  /// Releases the stage, and goes on behind the step.
  __device__ __forceinline__ void end_step(int, int by) const {
    release_(ring_.empty[state_.stage]);
    state_.go_on(by);
  }

 private:
  stage_ring<Stages>& ring_;
  pipeline_state<Stages>& state_;
  Release release_;
};

/// The side that reads stages by wgmma, of which a step commits one group. Release: as for ring_reader.
template <int Stages, class Release>
class product_reader {
 public:
  static_assert(Stages >= 2, "tessera: product_reader has at least two stages: one is released when the next is begun");

  /// Goes on from a state, which it changes.
  __device__ __forceinline__ product_reader(stage_ring<Stages>& ring, pipeline_state<Stages>& state,
                                            Release const& release)
      : ring_(ring), state_(state), release_(release) {}

  /// Waits until the step's stage is full.
  [[nodiscard]] __device__ __forceinline__ pipeline_step begin_step(int index) const {
    ring_.await_full(state_);
    return {index, state_.stage};
  }
  /// Goes on behind the step, and releases the stage of the step before, whose product is done.
  __device__ __forceinline__ void end_step(int index, int by) {
    int const stage = state_.stage;
    state_.go_on(by);
    if (index > 0) {
      await_multiply<1>();
      release_(ring_.empty[before_]);
    }
    before_ = stage;
  }
  /// Ends a row of at least one step: waits until all has been multiplied, and releases the last stage. `sums` can be
  /// read after this.
  template <class Sum, int Count>
  __device__ __forceinline__ void finish(Sum (&sums)[Count]) const {
    await_multiply<0>(sums);
    release_(ring_.empty[before_]);
  }
  /// The same for several tiles of sums.
  template <class Sum, int Count, int Tiles>
  __device__ __forceinline__ void finish(Sum (&sums)[Tiles][Count]) const {
    await_multiply<0>();
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
      pin_registers(sums[i]);
    }
    release_(ring_.empty[before_]);
  }

 private:
  stage_ring<Stages>& ring_;
  pipeline_state<Stages>& state_;
  Release release_;
  int before_ = 0;  ///< the stage of the step before
};

/// The range that pipelined() makes of a side, ring_filler, ring_reader, product_reader, or a reference to one, and of
/// steps.
template <class Side, class Steps>
class ring_steps {
 public:
  /// Steps of a side, which outlives the loop if it is a reference.
  __device__ __forceinline__ ring_steps(Side&& side, Steps const& steps)
      : side_(static_cast<Side&&>(side)), steps_(steps) {}

  /// The place of the loop.
  class iterator {
   public:
    /// Begins at the first step.
    __device__ __forceinline__ iterator(Side const& side, Steps const& steps)
        : side_(side), steps_(steps), index_(steps.start()) {}
    /// Begins the step: it is called once.
    __device__ __forceinline__ auto operator*() const { return side_.begin_step(index_); }
    __device__ __forceinline__ iterator& operator++() {
      side_.end_step(index_, steps_.by);
      index_ = steps_.after(index_);
      return *this;
    }
    [[nodiscard]] __device__ __forceinline__ bool operator!=(int stop) const { return Steps::is_before(index_, stop); }

   private:
    Side const& side_;  // where Side is a reference, that reference
    Steps steps_;
    int index_;
  };
  [[nodiscard]] __device__ __forceinline__ iterator begin() const { return iterator(side_, steps_); }
  [[nodiscard]] __device__ __forceinline__ int end() const { return steps_.stop(); }

  /// Runs all steps, each by fill(step, registers) after fetch(its number, registers), of which `Ahead` are called
  /// before the first step, and one behind each step. Both are called in the order of the steps.
  template <class Registers, int Ahead, class Fetch, class Fill>
  __device__ __forceinline__ void each_fetched(Registers (&in_flight)[Ahead], Fetch const& fetch,
                                               Fill const& fill) const {
    int next = steps_.start();
    auto const fetch_next = [&](Registers& to) {
      if (Steps::is_before(next, end())) {
        fetch(next, to);
      }
      next = steps_.after(next);
    };
#pragma unroll
    for (int i = 0; i < Ahead; ++i) {
      fetch_next(in_flight[i]);
    }
    iterator at = begin();
    while (true) {
#pragma unroll
      for (int i = 0; i < Ahead; ++i) {  // known in each step, so that they are registers
        if (!(at != end())) {
          return;
        }
        fill(*at, in_flight[i]);
        fetch_next(in_flight[i]);
        ++at;
      }
    }
  }

 private:
  Side side_;
  Steps steps_;
};

/// These steps, as one side takes them. Steps: step_range, also as {first, end}, or steps_from_last.
template <class Side, class Steps = step_range>
requires(!std::is_integral_v<Steps>)
    [[nodiscard]] __device__ __forceinline__ ring_steps<Side, Steps> pipelined(Side&& side, Steps const& steps) {
  return {static_cast<Side&&>(side), steps};
}
/// The steps from 0 to `steps` - 1, as one side takes them.
template <class Side>
[[nodiscard]] __device__ __forceinline__ ring_steps<Side, step_range> pipelined(Side&& side, int steps) {
  return {static_cast<Side&&>(side), {0, steps}};
}

}  // namespace v0
}  // namespace tessera
