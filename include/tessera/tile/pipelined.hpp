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
#pragma once

#include <tessera/config.hpp>
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

}  // namespace v0
}  // namespace tessera
