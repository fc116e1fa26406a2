// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Sequences of tokens with a classifier, for trials of losses of their log-probabilities, and the results in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/testing/generators.hpp>

#include "paper_trial.hpp"

namespace tessera_examples {

/// What a trial of sequences is of. Sequence s has `length` - s * `padding` tokens; with padding, a quarter of these
/// does not count.
struct sequence_extents {
  std::int64_t sequences, length, padding, vocabulary, channels;

  [[nodiscard]] std::int64_t tokens() const { return sequences * length; }
};

/// Hidden states N(0, 1), logits N(0, 4), any labels, and memory for both gradients.
struct classifier_trial {
  sequence_extents of;
  linear_loss_options options;
  buffer<bfloat16> hidden, weights, hidden_gradient, classifier_gradient;
  std::vector<std::int32_t> given;  ///< labels: that of token t stands at t + 1
  buffer<std::int32_t> labels;

  template <class Executor>
  classifier_trial(Executor const& exec, sequence_extents const& extents)
      : of(extents),
        options{.reduction = loss_reduction::none, .shift = 1, .sequence = of.length},
        hidden(filled<bfloat16>(exec, testing::gauss{}, 1, of.tokens() * of.channels)),
        weights(filled<bfloat16>(exec, testing::gauss{.sigma = 2 / std::sqrt(static_cast<double>(of.channels))}, 2,
                                 of.vocabulary * of.channels)),
        hidden_gradient(poisoned<bfloat16>(exec, of.tokens() * of.channels)),
        classifier_gradient(poisoned<bfloat16>(exec, of.vocabulary * of.channels)),
        labels(exec, of.tokens()) {
    for (std::int64_t i = 0; i < of.tokens(); ++i) {
      std::uint64_t const bits = mix_bits(3, static_cast<std::uint64_t>(i));
      bool const counts =
          i % of.length < of.length - i / of.length * of.padding && (of.padding == 0 || (bits >> 60) % 4 != 0);
      given.push_back(counts ? static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(of.vocabulary)) : -100);
    }
    exec.copy(given, labels);
    exec.wait();
  }

  [[nodiscard]] matrix_view<bfloat16 const> states() const { return {hidden.data(), {of.tokens(), of.channels}}; }
  [[nodiscard]] matrix_view<bfloat16 const> classifier() const {
    return {weights.data(), {of.vocabulary, of.channels}};
  }
  [[nodiscard]] linear_loss_gradients<bfloat16> gradients() {
    return {{hidden_gradient.data(), {of.tokens(), of.channels}},
            {classifier_gradient.data(), {of.vocabulary, of.channels}}};
  }
  /// The label of a token; negative: none.
  [[nodiscard]] std::int32_t label(std::int64_t token) const {
    return (token + 1) % of.length == 0 ? -100 : given[static_cast<std::size_t>(token) + 1];
  }
};

/// Compares the gradients of a classifier_trial, which a user's loss has left there, with those in double: of all
/// tokens and entries where there are few, else of three tokens and two entries.
class classifier_comparison {
 public:
  template <class Executor>
  classifier_comparison(Executor const& exec, classifier_trial const& trial)
      : trial_(trial),
        hidden_(here(exec, trial.hidden, 0, trial.hidden.size())),
        weights_(here(exec, trial.weights, 0, trial.weights.size())) {}

  /// The largest error, relative to the largest value of a token's or an entry's gradient; infinite where a loss or an
  /// entropy that was found has an error above 10^-4. `losses`, and `entropies` unless they are null: what was found
  /// for tokens; `by_loss`, `by_entropy`: what the gradient of a user's loss by these must be.
  template <class Executor>
  [[nodiscard]] double error(Executor const& exec, std::vector<float> const& losses,
                             std::vector<float> const* entropies, std::vector<double> const& by_loss,
                             std::vector<double> const& by_entropy) {
    std::int64_t const tokens = trial_.of.tokens(), vocabulary = trial_.of.vocabulary, channels = trial_.of.channels;
    bool const are_few = tokens * vocabulary * channels <= std::int64_t{1} << 22;
    double worst = 0;
    largest_error statistics;
    for (std::int64_t token = 0; token < tokens; token += are_few ? 1 : divide_up(tokens, std::int64_t{3})) {
      auto const i = static_cast<std::size_t>(token);
      auto const expected = gradient_of_token(token, by_loss[i], by_entropy[i]);
      statistics.add(static_cast<double>(losses[i]), loss_);
      statistics.add(entropies != nullptr ? static_cast<double>((*entropies)[i]) : 0.0,
                     entropies != nullptr ? entropy_ : 0.0);
      auto const found = here(exec, trial_.hidden_gradient, token * channels, channels);
      worst = worse(worst, found, expected);
    }
    for (std::int64_t entry = 0; entry < vocabulary; entry += are_few ? 1 : divide_up(vocabulary, std::int64_t{2})) {
      std::int32_t const frequent = entry == 0 ? std::max(trial_.label(tokens / 2), 0) : 0;  // one that is a label
      std::int64_t const row = are_few || frequent == 0 ? entry : frequent;
      auto const expected = gradient_of_entry(row, losses, entropies, by_loss, by_entropy);
      worst = worse(worst, here(exec, trial_.classifier_gradient, row * channels, channels), expected);
    }
    return statistics.relative() <= 1e-4 ? worst : HUGE_VAL;
  }

 private:
  /// The gradient by a logit with this log-probability: see cut_cross_entropy.hpp.
  static double by_logit(double log_probability, bool is_label, double by_loss, double entropy, double by_entropy) {
    double const probability = std::exp(log_probability);
    return by_loss * (probability - (is_label ? 1 : 0)) - by_entropy * probability * (log_probability + entropy);
  }
  [[nodiscard]] double logit(std::int64_t token, std::int64_t entry) const {
    double sum = 0;
    for (std::int64_t i = 0; i < trial_.of.channels; ++i) {
      sum += double{load(hidden_[token * trial_.of.channels + i])} *
             double{load(weights_[entry * trial_.of.channels + i])};
    }
    return sum;
  }
  /// Also finds the loss and the entropy of the token.
  std::vector<double> gradient_of_token(std::int64_t token, double by_loss, double by_entropy) {
    std::vector<double> gradient(static_cast<std::size_t>(trial_.of.channels));
    std::int32_t const label = trial_.label(token);
    loss_ = entropy_ = 0;
    if (label < 0) {
      return gradient;
    }
    std::vector<double> logits;
    for (std::int64_t entry = 0; entry < trial_.of.vocabulary; ++entry) {
      logits.push_back(logit(token, entry));
    }
    double const largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double const value : logits) {
      sum += std::exp(value - largest);
    }
    double const lse = largest + std::log(sum);
    for (double const value : logits) {
      entropy_ -= std::exp(value - lse) * (value - lse);
    }
    loss_ = lse - logits[static_cast<std::size_t>(label)];
    for (std::size_t entry = 0; entry < logits.size(); ++entry) {
      bool const is_label = static_cast<std::int64_t>(entry) == label;
      double const factor = by_logit(logits[entry] - lse, is_label, by_loss, entropy_, by_entropy);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] += factor * double{load(weights_[entry * gradient.size() + i])};
      }
    }
    return gradient;
  }
  /// By the losses and entropies that were found, of which some have been compared.
  [[nodiscard]] std::vector<double> gradient_of_entry(std::int64_t entry, std::vector<float> const& losses,
                                                      std::vector<float> const* entropies,
                                                      std::vector<double> const& by_loss,
                                                      std::vector<double> const& by_entropy) const {
    std::vector<double> gradient(static_cast<std::size_t>(trial_.of.channels));
    for (std::int64_t token = 0; token < trial_.of.tokens(); ++token) {
      std::int32_t const label = trial_.label(token);
      if (label < 0) {
        continue;
      }
      auto const t = static_cast<std::size_t>(token);
      double const log_probability = logit(token, entry) - logit(token, label) - static_cast<double>(losses[t]);
      double const factor = by_logit(log_probability, entry == label, by_loss[t],
                                     entropies != nullptr ? static_cast<double>((*entropies)[t]) : 0.0, by_entropy[t]);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] += factor * double{load(hidden_[t * gradient.size() + i])};
      }
    }
    return gradient;
  }
  static double worse(double worst, std::vector<bfloat16> const& found, std::vector<double> const& expected) {
    largest_error error;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      error.add(double{load(found[i])}, expected[i]);
    }
    double const own = error.relative();
    return std::isnan(worst) || own <= worst ? worst : own;
  }

  classifier_trial const& trial_;
  std::vector<bfloat16> hidden_, weights_;
  double loss_ = 0, entropy_ = 0;  ///< of the last token
};

}  // namespace tessera_examples
