// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `pipelined<Stages>`: a loop whose steps use stages of scratch that were filled while earlier steps ran.
///
///     auto const begin = [&](int step, int stage) {                       // starts to fill a stage
///       a.begin_load(group, scratch.a[stage], first_row, step * depth);   // tile/source/async_source.hpp
///       b.begin_load(group, scratch.b[stage], first_column, step * depth);
///     };
///     for (pipeline_step const at : pipelined<4>(group, steps, begin)) {
///       multiply_staged<product>(group, scratch.a[at.stage], scratch.b[at.stage], sums);
///     }
///
/// When a step runs, the next Stages - 1 ones are on their way. All lanes run the loop. There is one sync for each
/// step: after it the lanes' copies of the step are there, and the stage of the step before has been read, which is
/// filled next. After the loop scratch may still be read by other lanes.
///
/// `ring_refiller` and `late_refiller` are rings whose lanes fill again what they have read, where steps are taken
/// one by one, or several rings take turns: begin_step(), the step's work, end_step().
/// tile/cuda/sm_80/refilled_ring.cuh has loops over them and figures, and refilled_stages.cuh there is what GPUs run.
/// A ring's stages may be of two kinds, such as keys and values, which come one after the other:
///
///     auto const fill = [&](int stage) { stage == 0 ? begin_keys() : begin_values(); };    // the next ones, or none
///     late_refiller<2, Group, decltype(fill)> ring(group, fill);
///     ring.fill_all();
///     for (int tile = 0; tile < tiles; ++tile) {
///       int step = ring.begin_step(2 * tile).index;      // keys are there, and values on their way
///       make_scores();
///       ring.end_step(step, 1);
///       step = ring.begin_step(2 * tile + 1).index;      // values are there, and the next keys on their way
///       add_values();
///       ring.end_step(step, 1);
///     }
///
/// Where some warps fill stages and others read them, from sm_90 on, each side has its own loop over the same steps:
/// tile/cuda/sm_90/pipelined_ring.cuh.
///
/// `each_fetched_in_rounds` is a loop whose steps take what was read to registers while earlier steps ran.
///
///     fetched_tile in_flight[2];                                           // two steps are on their way
///     each_fetched_in_rounds(
///         step_range{first, end, by}, in_flight,
///         [&](int step, fetched_tile& to) { source.fetch(group, to, first_row, std::int64_t{step} * depth); },
///         [&](int step, fetched_tile const& from) {                        // tile/source/fetched_source.hpp
///           source.store(group, from, tile);
///           multiply(tile, step);
///         });
///
/// What is on its way takes registers, and neither scratch nor a sync. Laws: fetch() and take() are called in the order
/// of the steps, and a step takes what was fetched for it. Whether there is another step is asked once for as many as
/// are on their way. So steps behind the last one, fewer than these, are taken too, and as many more are fetched. They
/// must change nothing: a source's tiles are zeros there. To ask in each step costs: gemm_few_rows takes on an H200 for
/// 8192 x 8192 weights of 8 bits 32.6 us with one row and 32.2 with 16, and by such a loop 33.4 and 33.6; of 4 bits
/// 26.4 and 28.8, and 27.8 and 30.8.
///
/// Steps that fill stages of a ring have each_fetched() of tile/cuda/sm_90/pipelined_ring.cuh, which runs the steps of
/// the range alone: a stage that is filled behind the last would be read by nobody, and so never be empty again.
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/tile/copies_in_flight.hpp>

namespace tessera {
inline namespace v0 {

/// A step of a pipelined loop.
struct pipeline_step {
  int index;  ///< number of the step
  int stage;  ///< the stage that was filled for it
};

/// The range of steps that pipelined() makes. Begin: begin(step, stage).
template <int Stages, class G, class Begin>
class pipelined_steps {
 public:
  static_assert(Stages >= 2, "tessera: pipelined has at least two stages: one is used while another is filled");

  /// The steps from 0 to `steps` - 1.
  TESSERA_FN pipelined_steps(G const& group, int steps, Begin const& begin)
      : group_(group), steps_(steps), begin_(begin) {}

  /// What the loop's end is compared with.
  struct end_type {};
  /// The place of the loop.
  class iterator {
   public:
    /// Starts to fill the first stages, and waits for the first.
    TESSERA_FN explicit iterator(pipelined_steps const& all) : all_(all), at_{0, 0} {
      for (int step = 0; step < Stages - 1; ++step) {
        all_.fill(step, step);
      }
      all_.prepare(at_);
    }
    TESSERA_FN pipeline_step operator*() const { return at_; }
    TESSERA_FN iterator& operator++() {
      at_ = {at_.index + 1, at_.stage + 1 < Stages ? at_.stage + 1 : 0};
      all_.prepare(at_);
      return *this;
    }
    [[nodiscard]] TESSERA_FN bool operator!=(end_type) const { return at_.index < all_.steps_; }

   private:
    pipelined_steps const& all_;
    pipeline_step at_;
  };
  TESSERA_FN iterator begin() const { return iterator(*this); }
  TESSERA_FN end_type end() const { return {}; }

 private:
  using copies = copies_in_flight<G>;

  /// Starts to fill a stage. Beyond the last step it starts nothing, which counts as a batch that is done.
  TESSERA_FN void fill(int step, int stage) const {
    if (step < steps_) {
      begin_(step, stage);
    }
    copies::commit();
  }
  /// Waits for a step's stage, and starts to fill that of the step before.
  TESSERA_FN void prepare(pipeline_step at) const {
    if (at.index < steps_) {
      copies::template await<Stages - 2>();
      group_.sync();
      fill(at.index + Stages - 1, at.stage > 0 ? at.stage - 1 : Stages - 1);
    }
  }

  G const& group_;
  int steps_;
  Begin const& begin_;
};

/// The steps from 0 to `steps` - 1. `group` and `begin` outlive the loop.
template <int Stages, class G, class Begin>
[[nodiscard]] TESSERA_FN pipelined_steps<Stages, G, Begin> pipelined(G const& group, int steps, Begin const& begin) {
  return {group, steps, begin};
}

/// Fill: fill(stage) begins the lane's copies of the next stage that is not on its way. G: whose lanes read what the
/// others copied, with sync(). Rings: how many rings take turns.
template <int Stages, class G, class Fill, int Rings = 1>
class ring_refiller {
 public:
  static constexpr int stages = Stages;  ///< how many stages the ring has

  /// Goes on from a stage, which it changes. The group and `fill` outlive it.
  TESSERA_FN ring_refiller(G const& group, int& stage, Fill const& fill) : group_(group), stage_(stage), fill_(fill) {}

  /// Begins to fill a stage: each of them before the first step, in their order.
  TESSERA_FN void fill(int stage) const {
    fill_(stage);
    copies_in_flight<G>::commit();
  }
  /// Begins to fill all stages.
  TESSERA_FN void fill_all() const {
    each_constant<Stages>([&, this](auto stage) { fill(stage.value); });
  }
  /// Waits until the step's stage is full.
  [[nodiscard]] TESSERA_FN pipeline_step begin_step(int index) const {
    copies_in_flight<G>::template await<Rings * Stages - 1>();
    group_.sync();
    return {index, stage_};
  }
  /// Begins to fill the stage that all lanes have read, and goes on behind the step.
  TESSERA_FN void end_step(int = 0, int = 1) const {
    group_.sync();
    fill(stage_);
    stage_ = stage_ + 1 == Stages ? 0 : stage_ + 1;
  }

 private:
  G const& group_;
  int& stage_;
  Fill const& fill_;
};

/// Fill, G: as for ring_refiller.
template <int Stages, class G, class Fill>
class late_refiller {
 public:
  static_assert(Stages >= 2, "tessera: a late_refiller has at least two stages: one is read while another is filled");
  static constexpr int stages = Stages;  ///< how many stages the ring has

  /// Begins with stage 0. The group and `fill` outlive it.
  TESSERA_FN late_refiller(G const& group, Fill const& fill) : group_(group), fill_(fill) {}

  /// Begins to fill all stages but the last, which the first step does.
  TESSERA_FN void fill_all() {
    for (int i = 1; i < Stages; ++i) {
      fill_next();
    }
  }
  /// Waits until the step's stage is full, and begins to fill that of the step before, which all lanes have read.
  [[nodiscard]] TESSERA_FN pipeline_step begin_step(int index) {
    copies_in_flight<G>::template await<Stages - 2>();
    group_.sync();
    fill_next();
    return {index, stage_};
  }
  /// Goes on behind the step.
  TESSERA_FN void end_step(int, int) { stage_ = after(stage_); }

 private:
  TESSERA_FN static int after(int stage) { return stage + 1 == Stages ? 0 : stage + 1; }
  TESSERA_FN void fill_next() {
    fill_(next_);
    copies_in_flight<G>::commit();
    next_ = after(next_);
  }

  G const& group_;
  Fill const& fill_;
  int stage_ = 0;  ///< which is read next
  int next_ = 0;   ///< which is filled next
};

/// Steps `first`, `first + by`, ... below `end`. A step takes `by` stages of a ring, of which it uses the first.
struct step_range {
  int first;   ///< the first step
  int end;     ///< one past the last step
  int by = 1;  ///< steps, and stages, from a step to the next

  /// The first step.
  TESSERA_FN constexpr int start() const { return first; }
  /// What is_before() compares with.
  TESSERA_FN constexpr int stop() const { return end; }
  /// Whether a step is one of the range.
  TESSERA_FN static constexpr bool is_before(int index, int stop) { return index < stop; }
  /// The step after another one.
  TESSERA_FN constexpr int after(int index) const { return index + by; }
};

/// Calls fetch(step, registers), which starts to read, and take(step, registers), which waits for what was read, for
/// each step, and for fewer than `Ahead` behind the last. Registers: of a step on its way; `Ahead` steps are.
template <class Registers, int Ahead, class Fetch, class Take>
TESSERA_FN void each_fetched_in_rounds(step_range const& steps, Registers (&in_flight)[Ahead], Fetch const& fetch,
                                       Take const& take) {
  each_constant<Ahead>([&](auto i) { fetch(steps.first + i.value * steps.by, in_flight[i.value]); });
  for (int first = steps.first; first < steps.end; first += Ahead * steps.by) {
    each_constant<Ahead>([&](auto i) {  // known in each step, so that they are registers
      take(first + i.value * steps.by, in_flight[i.value]);
      fetch(first + (Ahead + i.value) * steps.by, in_flight[i.value]);
    });
  }
}

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/cuda/sm_80/refilled_stages.cuh>
#endif
