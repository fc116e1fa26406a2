// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Losses of tokens whose targets are entries with weights: `keep_target_losses`, a RowFinish, makes them of the states
/// of rows and of the entries' logits, `sum_target_losses` and `finish_target_losses` add them up.
///
///     loss of a token = weight * sum_k w_k ((1 - s) (lse - logit_k) + s (lse - mean logit) + z lse^2)
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/detail/target_rows.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The logits of targets, made of those of products.
template <LogitMap Map>
struct target_logits {
  [[no_unique_address]] Map map;    ///< not last, where nvcc 13.0 miscounts sizes
  matrix_view<float const> scaled;  ///< tokens x K: what the options made of sums of products

  /// The logit of an entry in a place of a token's row.
  [[nodiscard]] TESSERA_FN float logit(std::int64_t token, std::int64_t place, std::int64_t entry) const {
    float const value = scaled(token, place);
    if constexpr (leaves_logits<Map>) {
      return value;
    } else {
      return value == -infinity ? value : map(value, token, entry);
    }
  }
  /// The derivative of the logit by what the map was given.
  [[nodiscard]] TESSERA_FN float slope(std::int64_t token, std::int64_t place, std::int64_t entry) const {
    if constexpr (leaves_logits<Map>) {
      return 1.0F;
    } else {
      float const value = scaled(token, place);
      return value == -infinity ? 1.0F : map.slope(value, token, entry);
    }
  }
};

/// Sums over a token's entries, of their weights times something.
struct target_sums {
  double surprise;  ///< log-sum-exp - logit
  double mass;      ///< 1
  double logits;    ///< logit
};

/// The loss of a token, without the token's weight. R: a Reducer with a log-sum-exp.
template <LogitReducer R>
TESSERA_FN double loss_of_targets(R const& reducer, typename R::state_type const& state, target_sums const& sums,
                                  loss_terms const& terms) {
  softmax_reading const softmax = read_softmax(reducer, state);
  auto const lse = static_cast<double>(softmax.largest + softmax.above);
  double loss =
      sums.surprise + (terms.z_factor != 0.0F ? static_cast<double>(terms.z_factor) * sums.mass * lse * lse : 0.0);
  if constexpr (has_reducer<sum_reducer<float>, R>) {
    if (terms.smoothing != 0.0F) {
      double const mean =
          static_cast<double>(state_of<sum_reducer<float>>(reducer, state)) / static_cast<double>(terms.vocabulary);
      loss += static_cast<double>(terms.smoothing) * (sums.logits - sums.mass * mean);
    }
  }
  return loss;
}

/// What RowFinishes have that make a token's loss, without the token's weight, whatever the sums are made of.
template <class Entry>
struct kept_target_losses {
  target_rows<Entry> targets;
  loss_terms terms;                   ///< what else a loss is made of
  array_view<float> losses;           ///< the result, one for each token
  array_view<float> log_probability;  ///< weighted sums of the entries' log-probabilities, or null

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    targets.each_view(use);
  }

 protected:
  /// Writes what sums over a token's entries make.
  template <LogitReducer R>
  TESSERA_FN void keep(R const& reducer, std::int64_t token, typename R::state_type const& state,
                       target_sums const& sums) const {
    losses[token] = static_cast<float>(loss_of_targets(reducer, state, sums, terms));
    write_if_asked(log_probability, token, static_cast<float>(-sums.surprise));
  }
};

/// The RowFinish that makes a token's loss of the logits of its entries. R: a Reducer with a log-sum-exp.
template <LogitReducer R, class Entry, LogitMap Map>
struct keep_target_losses : kept_target_losses<Entry> {
  using kept_target_losses<Entry>::targets;
  target_logits<Map> logits;

  /// Takes the state of a token.
  TESSERA_FN void operator()(std::int64_t, std::int64_t token, typename R::state_type const& state) const {
    softmax_reading const softmax = read_softmax(R{}, state);
    target_sums sums{0.0, 0.0, 0.0};
    for (std::int64_t place = 0; place < targets.count(); ++place) {
      std::int64_t const entry = targets.weighted(token, place);
      if (entry >= 0) {
        auto const weight = static_cast<double>(targets.weights(token, place));
        float const logit = logits.logit(token, place, entry);
        sums.surprise += weight * static_cast<double>((softmax.largest - logit) + softmax.above);
        sums.mass += weight;
        sums.logits += weight * static_cast<double>(logit);
      }
    }
    this->keep(R{}, token, state, sums);
  }
};

/// Adds up the losses of each group's tokens, and writes those of tokens where they are asked for.
struct sum_target_losses {
  static constexpr int lanes = 256;
  struct scratch_type {};

  array_view<std::int32_t const> labels;  ///< of select_targets, one for each token
  array_view<float const> masses;         ///< of select_targets, one for each token
  array_view<float const> losses;         ///< of keep_target_losses, one for each token that has a label
  array_view<float const> weights;        ///< weights of tokens, or null for ones
  loss_token_outputs outputs;             ///< where the results of tokens go
  array_view<loss_sums> sums;             ///< one for each group; `correct` counts tokens with a bad entry

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(labels.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    per_lane<loss_sums, G> own;
    for (int lane : group) {
      std::int64_t const token = which * lanes + lane;
      own[lane] = token < labels.size() ? finish_token(token) : loss_sums{0, 0, 0};
    }
    loss_sums const total = reduce(group, own, plus{});
    for (int lane : group) {
      if (lane == 0) {
        sums[which] = total;
      }
    }
  }

 private:
  TESSERA_FN loss_sums finish_token(std::int64_t token) const {
    if (labels[token] < 0) {
      bool const is_bad = is_nan(masses[token]);
      write_all(outputs, token, is_bad ? not_a_number : 0.0F);
      return {0, 0, is_bad ? 1.0 : 0.0};
    }
    float const weight = weights.data != nullptr ? weights[token] : 1.0F;
    write_if_asked(outputs.loss, token, weight * losses[token]);
    return {static_cast<double>(weight) * static_cast<double>(losses[token]), static_cast<double>(weight), 0};
  }
};

/// Makes the loss of all tokens. Run with one group.
struct finish_target_losses {
  static constexpr int lanes = 256;
  struct scratch_type {};

  array_view<loss_sums const> sums;  ///< of sum_target_losses
  bool is_mean;                      ///< whether the loss is the mean by the weights of tokens, else the sum
  array_view<float> loss;            ///< one element, or null
  array_view<float> scale;           ///< one element: 1 / the sum of weights for a mean, else 1

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    per_lane<loss_sums, G> own;
    for (int lane : group) {
      own[lane] = loss_sums{0, 0, 0};
      for (std::int64_t i = lane; i < sums.size(); i += lanes) {
        own[lane] = own[lane] + sums[i];
      }
    }
    loss_sums const total = reduce(group, own, plus{});
    double const factor = !is_mean ? 1.0 : total.weight != 0.0 ? 1.0 / total.weight : 0.0;
    for (int lane : group) {
      if (lane == 0) {
        scale[0] = static_cast<float>(factor);
        double const value = is_mean && total.weight == 0.0 ? 0.0 : total.loss * factor;
        write_if_asked(loss, 0, total.correct > 0 ? not_a_number : static_cast<float>(value));
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
