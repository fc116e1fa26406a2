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
/// They may also be found one by one: steps_while, or messages (message_ring.cuh).
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
/// A `pair_reader` is for steps that read two rings, where the second may be a step behind the first, so that products
/// of a step's first stage run beside those of the second stage of the step before. Steps say themselves when a stage
/// of either ring has been read:
///
///     pair_reader<4, 1, release_for_warp> reads(keys, values, state);   // pair_state<4, 1>
///     steps_from_last left{begin, end};
///     for (pipeline_step const at : pipelined(reads, left.take_from(end - 1))) {
///       score(at.stage);
///       reads.release_first();
///     }
///     for (pipeline_step const at : pipelined(reads, left)) {
///       score(at.stage);
///       reads.release_first();
///       weigh(reads.await_second());                                    // of the step before
///       reads.release_second();
///     }
///     weigh(reads.await_second());                                      // of the last step
///     reads.release_second();
///
/// A `late_reader` leaves it to its steps to wait for a stage, or for those of several rings: at.when_full(ring). Lanes
/// that fill stages while they read others are those of tile/cuda/sm_80/refilled_ring.cuh.
///
/// Speed of attention with main loops of these words and message_ring.cuh's, relative to loops by hand, in turns on an
/// H200 over 16K tokens of N(0, 1), full and causal; results have the same bits:
///
///     channels                                     64             128             256
///     dense_attention                          1.02  1.02      .995  .998      .998  .997
///     sage_attention2, over codes               .99  1.00      1.07  1.07      1.01  1.00
///     lists of half of the tiles, over codes   1.01  1.01      1.02  1.01      1.01  1.01
///
/// The least were .98, of dense_attention with 256 queries of 32K keys (1.00 in another run), and .99 with 4K tokens of
/// 128 channels, and of codes of 1024 tokens of 64 channels.
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
  /// How many steps there are.
  [[nodiscard]] __device__ __forceinline__ int count() const { return end - begin; }
  /// Takes the steps from the last down to `cut` away, if there are any, and leaves the others here.
  [[nodiscard]] __device__ __forceinline__ steps_from_last take_from(int cut) {
    int const last = end;
    end = max(min(cut, end), begin);
    return {end, last};
  }
};
/// Steps without numbers, one or more, until goes_on() is false at the end of a step.
template <class GoesOn>
class steps_while {
 public:
  static constexpr int by = 1;  ///< stages from a step to the next

  /// Steps that go on while the function says so.
  __device__ __forceinline__ explicit steps_while(GoesOn const& goes_on) : goes_on_(goes_on) {}

  /// The first step.
  __device__ __forceinline__ static int start() { return 0; }
  /// What is_before() compares with.
  __device__ __forceinline__ static int stop() { return 0; }
  /// Whether a step is not the end.
  __device__ __forceinline__ static bool is_before(int index, int stop) { return index >= stop; }
  /// The step after another one.
  __device__ __forceinline__ int after(int) const { return goes_on_() ? 0 : -1; }

 private:
  GoesOn goes_on_;
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

/// A step that reads a stage some time after the step has begun.
template <int Stages>
struct read_step : pipeline_step {
  pipeline_state<Stages> state;  ///< the stage, and the parity of the phase in which it is filled

  /// Waits until the step's stage of a ring is full. Returns the barrier at which it is released.
  [[nodiscard]] __device__ __forceinline__ shared_barrier& when_full(stage_ring<Stages>& ring) const {
    ring.await_full(state);
    return ring.empty[state.stage];
  }
};

/// The side that reads stages, of one ring or of several, for which the steps wait themselves. State: as for
/// ring_filler.
template <class State>
class late_reader {
 public:
  /// Goes on from a state, which it changes.
  __device__ __forceinline__ explicit late_reader(State& state) : state_(state) {}

  /// The step, whose stage has not been waited for.
  [[nodiscard]] __device__ __forceinline__ read_step<State::stages> begin_step(int index) const {
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
/// Each lane releases a stage that it has read. One lane could do so for a warp behind sync_warp(), which orders the
/// lanes' reads before its arrival, a release at the scope of the block. But racecheck does not see that: of 384 tokens
/// it reported 18184 reads before writes as hazards in forward_by_warps, and none where each lane arrives.
struct release_for_lane {
  /// Arrives.
  __device__ __forceinline__ void operator()(shared_barrier& empty) const { empty.arrive(); }
  /// Arrives once `read`, or the value that it was computed from, has been loaded.
  __device__ __forceinline__ void operator()(shared_barrier& empty, std::uint32_t read) const {
    empty.arrive_after(read);
  }
  /// Arrives once `read`, or the value that it was computed from, has been loaded.
  __device__ __forceinline__ void operator()(shared_barrier& empty, float read) const { empty.arrive_after(read); }
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

/// Where a pair_reader is: `Lag` steps further in the first ring than in the second.
template <int Stages, int Lag>
struct pair_state {
  pipeline_state<Stages> first;   ///< in the first ring
  pipeline_state<Stages> second;  ///< in the second ring
};
/// Without a lag both are at the same stage, which takes registers once.
template <int Stages>
struct pair_state<Stages, 0> : pipeline_state<Stages> {};

/// The side that reads stages of two rings in the same steps: of the first ring that of the step, of the second that of
/// `Lag` steps before. Release, ReleaseSecond: as for ring_reader, for either ring; they also get what release_first()
/// and release_second() are given.
template <int Stages, int Lag, class Release, class ReleaseSecond = Release>
class pair_reader {
 public:
  static_assert(Lag == 0 || Lag == 1, "tessera: the second ring of a pair_reader is at most one step behind the first");

  /// Goes on from a state, which it changes.
  __device__ __forceinline__ pair_reader(stage_ring<Stages>& first, stage_ring<Stages>& second,
                                         pair_state<Stages, Lag>& state)
      : first_(first), second_(second), state_(state) {}

  /// Waits until the step's stage of the first ring is full.
  [[nodiscard]] __device__ __forceinline__ pipeline_step begin_step(int index) const {
    pipeline_state<Stages>& at = first_state();
    first_.await_full(at);
    return {index, at.stage};
  }
  /// Does nothing: the step has released its stages.
  __device__ __forceinline__ void end_step(int, int) const {}

  /// Releases the step's stage of the first ring. Once in each step.
  template <class... Read>
  __device__ __forceinline__ void release_first(Read const&... read) const {
    pipeline_state<Stages>& at = first_state();
    Release{}(first_.empty[at.stage], read...);
    if constexpr (Lag > 0) {
      at.advance();
    }
  }
  /// Waits until a stage of the second ring is full, and returns its number. Once in each step; with a lag not in the
  /// first of a row, but behind the last.
  [[nodiscard]] __device__ __forceinline__ int await_second() const {
    pipeline_state<Stages>& at = second_state();
    second_.await_full(at);
    return at.stage;
  }
  /// Releases that stage. Without a lag this comes behind release_first(): no stage is used after it.
  template <class... Read>
  __device__ __forceinline__ void release_second(Read const&... read) const {
    pipeline_state<Stages>& at = second_state();
    ReleaseSecond{}(second_.empty[at.stage], read...);
    at.advance();
  }

 private:
  [[nodiscard]] __device__ __forceinline__ pipeline_state<Stages>& first_state() const {
    if constexpr (Lag > 0) {
      return state_.first;
    } else {
      return state_;
    }
  }
  [[nodiscard]] __device__ __forceinline__ pipeline_state<Stages>& second_state() const {
    if constexpr (Lag > 0) {
      return state_.second;
    } else {
      return state_;
    }
  }

  stage_ring<Stages>& first_;
  stage_ring<Stages>& second_;
  pair_state<Stages, Lag>& state_;
};

/// The range that pipelined() makes of a side, ring_filler, ring_reader, product_reader, pair_reader, or a reference to
/// one, and of steps.
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
    /// Whether there is a step: it is called once for each.
    [[nodiscard]] __device__ __forceinline__ bool operator!=(int stop) { return steps_.is_before(index_, stop); }

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
