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
