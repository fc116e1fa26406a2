// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Turns the states of rows into losses: `finish_loss_tokens` makes the losses of tokens and the sums of groups of
/// them, `finish_loss` adds up the groups. All sums over tokens are in double and in an order that depends on the
/// extents alone.
///
///     loss of a token = weight * ((1 - s) (lse - logit of the label) + s (lse - mean logit) + z lse^2)
///
/// s: smoothing; z: the factor of the z-loss; lse: the log-sum-exp of the logits; weight: loss_token_weights.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/entropy.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/row_finish.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Sums over the tokens of a group.
struct loss_sums {
  double loss;     ///< sum of losses
  double weight;   ///< sum of weights
  double correct;  ///< tokens whose likeliest entry is their label

  /// The sums of two groups together.
  TESSERA_FN friend constexpr loss_sums operator+(loss_sums const& a, loss_sums const& b) {
    return {a.loss + b.loss, a.weight + b.weight, a.correct + b.correct};
  }
};

/// The terms of the loss beside the log-sum-exp and the label's logit.
struct loss_terms {
  float smoothing;          ///< label smoothing
  float z_factor;           ///< factor of the squared log-sum-exp
  std::int64_t vocabulary;  ///< entries of the vocabulary
};

/// What a Reducer's state tells of the softmax of a row.
struct softmax_reading {
  float largest;      ///< the largest logit
  float above;        ///< log-sum-exp - largest: not negative, and exact where one entry has all the probability
  float entropy = 0;  ///< the softmax's entropy, in nats; 0 where the reducer does not compute it
};

/// Reads a state of any reducer that has a log-sum-exp.
template <LogitReducer R>
TESSERA_FN softmax_reading read_softmax(R const& reducer, typename R::state_type const& state) {
  if constexpr (has_reducer<entropy_reducer<float>, R>) {
    auto const& part = state_of<entropy_reducer<float>>(reducer, state);
    return {part.largest, log(part.scaled), entropy_reducer<float>{}.entropy(part)};
  } else {
    auto const& part = state_of<lse_reducer<float>>(reducer, state);
    return {part.largest, log(part.scaled), 0.0F};
  }
}

/// Makes the losses of tokens from the states of rows, and adds up the tokens of each group. The state of `Own`, which
/// is R or a part of it, goes to `finish` with the row and its token.
template <LogitReducer R, LogitReducer Own = R, RowFinish<typename Own::state_type> Finish = keep_no_state>
struct finish_loss_tokens {
  static_assert(has_reducer<lse_reducer<float>, R> || has_reducer<entropy_reducer<float>, R>,
                "tessera: the reducer of a loss is or has an lse_reducer<float> or an entropy_reducer<float>");
  static constexpr int lanes = 256;
  struct scratch_type {};

  loss_token_list tokens;
  R reducer;
  matrix_view<typename R::state_type const> states;  ///< splits of the vocabulary x rows of the list
  array_view<float const> targets;                   ///< the logit of each row's label
  loss_token_weights weights;                        ///< what losses are multiplied by
  loss_terms terms;                                  ///< what else a loss is made of
  loss_token_outputs outputs;
  array_view<float> row_lse;      ///< for the backward pass: NaN unless it is finite, which keeps all blocks of the row
  array_view<float> row_entropy;  ///< for the backward pass: entropy of the row's softmax
  [[no_unique_address]] Finish finish;  ///< called once for each row; not last, where nvcc 13.0 miscounts sizes
  array_view<loss_sums> sums;           ///< one for each group
  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(tokens.order.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    per_lane<loss_sums, G> own;
    for (int lane : group) {
      std::int64_t const row = which * lanes + lane;
      own[lane] = row < tokens.count[0] ? finish_row(row) : loss_sums{0, 0, 0};
    }
    loss_sums const total = reduce(group, own, detail::plus{});
    for (int lane : group) {
      if (is_first(lane)) {
        sums[which] = total;
      }
    }
  }

 private:
  TESSERA_FN loss_sums finish_row(std::int64_t row) const {
    std::int64_t const token = tokens.order[row];
    auto state = reducer.identity();
    for (std::int64_t piece = 0; piece < states.extent(0); ++piece) {
      reducer.merge(state, states(piece, row));
    }
    softmax_reading const softmax = read_softmax(reducer, state);
    float const lse = softmax.largest + softmax.above;
    float const surprise = (softmax.largest - targets[row]) + softmax.above;
    float loss = surprise + terms.z_factor * lse * lse;
    if constexpr (has_reducer<sum_reducer<float>, R>) {
      float const mean = state_of<sum_reducer<float>>(reducer, state) / static_cast<float>(terms.vocabulary);
      if (terms.smoothing != 0.0F) {
        loss += terms.smoothing * (targets[row] - mean);
      }
    }
    float const weight = weights.of(token, tokens.labels[row]);
    row_lse[row] = is_finite(lse) ? lse : detail::not_a_number;
    row_entropy[row] = softmax.entropy;
    detail::write_if_asked(outputs.loss, token, weight * loss);
    detail::write_if_asked(outputs.log_sum_exp, token, lse);
    detail::write_if_asked(outputs.log_probability, token, -surprise);
    detail::write_if_asked(outputs.entropy, token, softmax.entropy);
    finish(row, token, state_of<Own>(reducer, state));
    double correct = 0;
    if constexpr (has_reducer<arg_max_reducer<float>, R>) {
      std::int32_t const best = state_of<arg_max_reducer<float>>(reducer, state).index;
      detail::write_if_asked(outputs.prediction, token, best);
      correct = best == tokens.labels[row] ? 1 : 0;
    }
    return {static_cast<double>(weight) * static_cast<double>(loss), static_cast<double>(weight), correct};
  }
};

/// The values for all tokens together, one element each; null where they are not wanted.
struct loss_total_outputs {
  array_view<float> loss;  ///< the sum, or the mean by weight
  /// The part of the labelled tokens whose prediction is their label; 0 without tokens.
  array_view<float> accuracy;
  array_view<std::int64_t> count;  ///< the number of tokens with a label
};

/// Adds up the sums of groups to the loss of all tokens. Run with one group.
struct finish_loss {
  static constexpr int lanes = 1024;         // as other programs that end a forward pass, see end_loss_forward
  static constexpr int summing_lanes = 256;  ///< lanes that add up sums, on which the order of additions depends
  struct scratch_type {};

  array_view<loss_sums const> sums;      ///< one for each group of tokens
  array_view<std::int64_t const> count;  ///< one element: tokens that have a label
  array_view<float const> poison;        ///< one element: NaN if a label was outside of the vocabulary, else 0
  bool is_mean;                          ///< whether the loss is the mean by weight, else the sum
  loss_total_outputs outputs;            ///< where results go
  array_view<float> scale;               ///< one element, for the backward pass: 1 / total weight for a mean, else 1

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    per_lane<loss_sums, G> own;
    for (int lane : group) {
      own[lane] = loss_sums{0, 0, 0};
      for (std::int64_t i = lane; lane < summing_lanes && i < sums.size(); i += summing_lanes) {
        own[lane] = own[lane] + sums[i];
      }
    }
    loss_sums const total = reduce(group, own, detail::plus{});
    // A mean of nothing is 0, with gradients of 0, so that a batch without labels does no harm.
    double const factor = !is_mean ? 1.0 : total.weight != 0.0 ? 1.0 / total.weight : 0.0;
    for (int lane : group) {
      if (is_first(lane)) {
        double const tokens = static_cast<double>(count[0]);
        scale[0] = static_cast<float>(factor);
        double const loss = is_mean && total.weight == 0.0 ? 0.0 : total.loss * factor;
        detail::write_if_asked(outputs.loss, 0, static_cast<float>(loss) + poison[0]);
        detail::write_if_asked(outputs.accuracy, 0, static_cast<float>(tokens > 0 ? total.correct / tokens : 0.0));
        detail::write_if_asked(outputs.count, 0, count[0]);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
