// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The loss of policy_gradient_loss and its gradients by each token's loss and entropy, as defined, in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../support/classifier_trial.hpp"
#include "policy_gradient_loss.hpp"

namespace tessera_examples {

/// The loss, and its gradients by tokens' losses and entropies.
struct policy_gradient_definition {
  double loss = 0, magnitude = 0;  ///< the sum of the loss's terms, and of their absolute values
  std::vector<double> by_loss, by_entropy;

  policy_gradient_definition(classifier_trial const& trial, policy_objective const& objective,
                             std::vector<float> const& losses, std::vector<float> const& entropies,
                             std::vector<float> const& old, std::vector<float> const& reference,
                             std::vector<float> const& advantages) {
    auto const tokens = static_cast<std::size_t>(trial.of.tokens());
    auto const length = static_cast<std::size_t>(trial.of.length);
    std::vector<double> counts(advantages.size());
    double count = 0;
    for (std::size_t i = 0; i < tokens; ++i) {
      counts[i / length] += trial.label(static_cast<std::int64_t>(i)) >= 0 ? 1 : 0;
      count += trial.label(static_cast<std::int64_t>(i)) >= 0 ? 1 : 0;
    }
    for (std::size_t i = 0; i < tokens; ++i) {
      by_loss.push_back(0);
      by_entropy.push_back(0);
      if (trial.label(static_cast<std::int64_t>(i)) < 0) {
        continue;
      }
      double const own = counts[i / length] * static_cast<double>(advantages.size());
      double const weight = 1 / (objective.is_by_sequence ? own : count);
      double const advantage{advantages[i / length]}, beta{objective.kl_factor}, bonus{objective.entropy_factor};
      double const log_probability = -double{losses[i]}, ratio = std::exp(log_probability - double{old[i]});
      double const apart = double{reference[i]} - log_probability;
      bool const is_clipped =
          advantage > 0 ? ratio > 1 + double{objective.clip_high} : ratio < 1 - double{objective.clip_low};
      double const limit = advantage > 0 ? 1 + double{objective.clip_high} : 1 - double{objective.clip_low};
      for (double const term : {-(is_clipped ? limit : ratio) * advantage, beta * (std::exp(apart) - apart - 1),
                                -bonus * double{entropies[i]}}) {
        loss += weight * term;
        magnitude += weight * std::fabs(term);
      }
      by_loss.back() = weight * ((is_clipped ? 0 : ratio * advantage) - beta * (1 - std::exp(apart)));
      by_entropy.back() = -weight * bonus;
    }
  }
};

}  // namespace tessera_examples
