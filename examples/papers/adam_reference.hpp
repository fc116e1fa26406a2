// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What a trial of 8-bit Adam compares with: Adam in double, and what codes of moments stand for.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "../support/paper_trial.hpp"
#include "eight_bit_adam.hpp"

namespace tessera_examples {

/// The state of neighbouring parameters.
struct exact_adam {
  std::vector<double> weights, first, second;

  void step(std::vector<float> const& gradients, adam_options const& options, int t) {
    double const b1{options.first_decay}, b2{options.second_decay}, rate{options.rate};
    for (std::size_t i = 0; i < weights.size(); ++i) {
      double const slope{gradients[i]};
      first[i] = b1 * first[i] + (1 - b1) * slope;
      second[i] = b2 * second[i] + (1 - b2) * slope * slope;
      double const root = std::sqrt(second[i] / (1 - std::pow(b2, t)));
      weights[i] -= rate * (double{options.weight_decay} * weights[i] +
                            first[i] / (1 - std::pow(b1, t)) / (root + double{options.epsilon}));
    }
  }
};

/// What a block's codes stand for, and how far this may be from what was encoded.
struct decoded_moments {
  std::vector<double> values;
  double most_apart = 0;

  template <class Executor, class Q>
  decoded_moments(Executor const& exec, moments_memory<Q> const& from, std::int64_t block, std::size_t count)
      : values(count) {
    auto const words = here(exec, from.codes, block * Q::group / 4, static_cast<std::int64_t>((count + 3) / 4));
    auto const params = here(exec, from.params, block, 1)[0];
    most_apart = double{Q{}.max_error(params)};
    for (std::size_t i = 0; i < count; ++i) {
      values[i] =
          double{coded_moments<Q>::decode(coded_moments<Q>::code(words[i / 4], static_cast<int>(i % 4)), params)};
    }
  }
  [[nodiscard]] bool are_near(std::vector<double> const& encoded) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!(std::fabs(values[i] - encoded[i]) <= most_apart + 1e-6 * std::fabs(encoded[i]))) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace tessera_examples
