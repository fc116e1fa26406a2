// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_marks`: which vocabulary entries may matter to which blocks of tokens, in one bit for each pair. The forward
/// pass of a loss makes them, before log-sum-exps are known, for a backward pass that leaves out small gradients.
///
/// Bit j % 32 of word (i / 128, j / 32) is set if softmax(i, j) >= threshold for any token i of that block that has a
/// label; it may also be set otherwise. Logits are compared with threshold * exp(a bound of the log-sum-exp). The bound
/// is made of the sum over the entries known so far, and, for the others, of the least sum that as many entries were
/// seen to have. The latter is a guess: each token's largest bound is kept, and a block gets all bits if the bound of
/// one of its tokens turns out to be above the log-sum-exp, or if a log-sum-exp is NaN or infinite.
///
/// Programs: `clear_loss_states` runs first. `share_loss_bounds` runs between launches, each of which processes a part
/// of the vocabulary: with it the workers that share a row exchange their bounds. `check_loss_marks` runs last.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/entropy.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/row_fold.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The bounds of a token, in units of log 2.
struct loss_bound {
  float least;    ///< the least log-sum-exp of a whole tile that was looked at
  float highest;  ///< the highest bound of its log-sum-exp that was used
};

/// What is known of a token's log-sum-exp when a launch begins, in units of log 2.
struct known_loss {
  float sum;    ///< the log-sum-exp of the entries that are done
  float least;  ///< the least log-sum-exp of a whole tile that was looked at
};

/// Which entries of the vocabulary may matter to which tokens: a bit for each entry and block of tokens.
struct loss_marks {
  /// Tokens of a block, which share a bit.
  static constexpr int block_tokens = 128;
  /// Bounds are lowered by slack and by their magnitude times relative_slack: twice what rounding adds to them.
  static constexpr float slack = 2e-3F;
  /// The relative difference that logits of two programs may have.
  static constexpr float relative_slack = 2e-6F;

  matrix_view<std::uint32_t> live;     ///< blocks of 128 tokens x words of 32 entries; null where no marks are wanted
  matrix_view<loss_bound> bounds;      ///< one for each state of each row of the list of tokens
  array_view<known_loss> known;        ///< one for each row of the list of tokens
  array_view<std::int32_t> is_marked;  ///< one element: 1 if there are marks
  float threshold = 0;                 ///< softmaxes from here on matter

  /// Whether marks are to be made.
  [[nodiscard]] TESSERA_FN constexpr bool are_wanted() const { return live.data != nullptr && threshold > 0; }
};

/// How many states of a row sm_90a's forward pass keeps: for a Reducer that gets its values by push(), one for each of
/// the two lanes that push values of the row. A state of 40 bytes twice is the most that leaves room for all stages of
/// warpgroup_loss_tuning.
template <LogitReducer R>
inline constexpr int loss_row_states = row_fold<R>::is_pushed && sizeof(typename R::state_type) <= 40 ? 2 : 1;

/// What a forward pass keeps in shared memory of a row, from tile to tile.
template <LogitReducer R, int States = loss_row_states<R>>
struct loss_row_memory {
  typename R::state_type states[States];  ///< of the logits seen so far; the second of pushed values alone
  loss_bound bound;                       ///< bounds of the log-sum-exp
  float known;                            ///< log2 of the sum that was known when this launch began
  float floor;                            ///< logits below it do not matter
  std::int32_t label;                     ///< the row's label; -1: the row has none
};

/// The sum of exponentials in a state of a Reducer that is or has an lse_reducer or an entropy_reducer.
template <LogitReducer R>
TESSERA_FN constexpr scaled_exponentials<float> exponentials_of(R const& reducer, typename R::state_type const& state) {
  if constexpr (has_reducer<entropy_reducer<float>, R>) {
    auto const& part = state_of<entropy_reducer<float>>(reducer, state);
    return {part.largest, part.scaled};
  } else {
    return state_of<lse_reducer<float>>(reducer, state);
  }
}

/// Sets states and bounds of rows to those of no logits. Run with a lane for each row of the list of tokens. R: the
/// Reducer.
template <LogitReducer R>
struct clear_loss_states {
  static constexpr int lanes = 256;
  struct scratch_type {};

  matrix_view<typename R::state_type> states;  ///< splits of the vocabulary x rows of the list
  loss_marks marks;

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(states.extent(1), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const row = which * lanes + lane;
      for (std::int64_t i = 0; row < states.extent(1) && i < states.extent(0); ++i) {
        states(i, row) = R{}.identity();
        if (marks.are_wanted()) {
          marks.bounds(i, row) = {infinity, -infinity};
        }
      }
    }
  }
};

/// Merges what all splits of the vocabulary have seen of a row. Run with a lane for each row of the list of tokens. R:
/// the Reducer.
template <LogitReducer R>
struct share_loss_bounds {
  static constexpr int lanes = 256;
  struct scratch_type {};

  matrix_view<typename R::state_type const> states;  ///< splits of the vocabulary x rows of the list
  loss_marks marks;
  array_view<std::int64_t const> count;  ///< one element: how many rows the list has

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(states.extent(1), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    constexpr float log2_e = 1.442695041F;
    each_index<lanes>(group, which, count[0], [&, this](std::int64_t row) {
      scaled_exponentials<float> sum{-infinity, 0.0F};
      float least = infinity;
      for (std::int64_t i = 0; i < states.extent(0); ++i) {
        lse_reducer<float>{}.merge(sum, exponentials_of(R{}, states(i, row)));
        least = minimum(least, marks.bounds(i, row).least);
      }
      marks.known[row] = {lse_reducer<float>{}.value(sum) * log2_e, least};
    });
  }
};

/// Checks the bounds against the log-sum-exps, once these are known, and sets all bits of a block where one was wrong.
/// Run with a group for each block of tokens.
struct check_loss_marks {
  static constexpr int lanes = 1024;  // as other programs that end a forward pass, see end_loss_forward
  struct scratch_type {};

  loss_marks marks;
  loss_token_list tokens;
  array_view<float const> row_lse;  ///< log-sum-exps of the rows of the list
  std::int64_t vocabulary;          ///< entries of the vocabulary

  TESSERA_FN constexpr std::int64_t groups() const { return marks.live.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    per_lane<std::int32_t, G> wrong;
    for (int lane : group) {
      std::int64_t const token = which * loss_marks::block_tokens + lane;
      bool const is_token = lane < loss_marks::block_tokens && token < tokens.row_of.size();
      std::int64_t const row = is_token ? tokens.row_of[token] : -1;
      wrong[lane] = row < 0 || is_right(row) ? 0 : 1;
    }
    std::int32_t const count = reduce(group, wrong, detail::plus{});
    for (int lane : group) {
      if (count > 0) {
        set_all(which, lane);
      }
      if (which == 0 && is_first(lane)) {
        marks.is_marked[0] = 1;
      }
    }
  }

 private:
  TESSERA_FN bool is_right(std::int64_t row) const {
    constexpr float log2_e = 1.442695041F;
    float const lse = row_lse[row] * log2_e;
    bool right = is_finite(lse);
    for (std::int64_t i = 0; i < marks.bounds.extent(0); ++i) {
      float const beyond = marks.bounds(i, row).highest - lse;
      right = right && beyond <= 0.5F * (loss_marks::slack + loss_marks::relative_slack * absolute(lse));
    }
    return right;
  }
  TESSERA_FN void set_all(std::int64_t block, int lane) const {
    for (std::int64_t word = lane; word < marks.live.extent(1); word += lanes) {
      std::int64_t const left = vocabulary - word * 32;
      marks.live(block, word) = left >= 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << left) - 1;
    }
  }
};

}  // namespace v0
}  // namespace tessera
