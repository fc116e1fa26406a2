// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A short fine-tuning of a classifier and its adapter, and the curves of its losses.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "../support/distance.hpp"
#include "../support/failure.hpp"
#include "adam.hpp"
#include "adapted_classifier.hpp"

namespace tessera_examples {

/// How trainings go that are to be compared.
struct training_plan {
  int steps = 0;
  std::size_t batch = 0;     ///< tokens of a step, in the order of the text; after the last ones the first come again
  std::size_t held_out = 0;  ///< the last tokens, which are never trained on
  int every = 1;             ///< steps between losses of the held-out tokens
  float rate = 0;            ///< how far a step moves weights, after warming up
  int warm_up = 0;           ///< steps in which the rate grows to that
  int threads = 1;
};

/// The losses of one training, in nats a token.
struct loss_curve {
  std::string name;
  std::vector<double> training;     ///< of each step's batch, before the step
  std::vector<int> held_out_steps;  ///< after so many steps
  std::vector<double> held_out;     ///< the loss of the held-out tokens
  double seconds_a_step = 0;        ///< of the processor, which other programs do not change
  double rows_not_moved = 0;        ///< the part of the classifier's rows that training has left as they were
  adapted_weights weights;          ///< at the end
};

/// The tokens that are not trained on.
inline token_range held_out_tokens(classifier_problem const& data, training_plan const& plan) {
  require(exit_code::usage, plan.batch > 0 && plan.held_out > 0 && plan.batch + plan.held_out <= data.tokens,
          "there are ", data.tokens, " tokens, too few for a batch of ", plan.batch, " and ", plan.held_out,
          " that are held out");
  return {data.tokens - plan.held_out, plan.held_out};
}

/// The tokens of a step. All batches are of the same size; tokens after the last whole one are not used.
inline token_range batch_of(classifier_problem const& data, training_plan const& plan, int step) {
  std::size_t const batches = held_out_tokens(data, plan).first / plan.batch;
  return {static_cast<std::size_t>(step) % batches * plan.batch, plan.batch};
}

/// The rate of a step.
inline float rate_of(training_plan const& plan, int step) {
  return plan.rate * std::min(1.0F, static_cast<float>(step + 1) / static_cast<float>(plan.warm_up + 1));
}

/// The part of rows that are the same in both lists.
inline double part_of_equal_rows(std::vector<float> const& a, std::vector<float> const& b, std::size_t channels) {
  std::size_t equal = 0;
  for (std::size_t first = 0; first < a.size(); first += channels) {
    auto const from = static_cast<std::ptrdiff_t>(first);
    equal += std::equal(a.begin() + from, a.begin() + from + static_cast<std::ptrdiff_t>(channels), b.begin() + from)
                 ? 1
                 : 0;
  }
  return static_cast<double>(equal) / (static_cast<double>(a.size()) / static_cast<double>(channels));
}

/// Trains; `told(step, curve)` is called after each step. Trainings of the same plan differ only in the loss's filter.
template <class Loss, class Told>
loss_curve fine_tune(classifier_problem const& data, training_plan const& plan, std::string name,
                     filter_choice const& filter, Told const& told) {
  token_range const held_out = held_out_tokens(data, plan);
  adapted_classifier<Loss> model(data, filter, plan.threads);
  std::vector<float> const before = model.weights().classifier;
  adam adapter_steps(model.weights().adapter.size());
  adam classifier_steps(model.weights().classifier.size());
  loss_curve curve;
  curve.name = std::move(name);
  auto const look = [&](int steps) {
    curve.held_out_steps.push_back(steps);
    curve.held_out.push_back(static_cast<double>(model.loss(held_out)));
  };
  look(0);
  double seconds = 0;
  for (int step = 0; step < plan.steps; ++step) {
    std::clock_t const start = std::clock();
    curve.training.push_back(static_cast<double>(model.differentiate(batch_of(data, plan, step))));
    float const rate = rate_of(plan, step);
    adapter_steps.step(rate, model.gradients().adapter, model.weights().adapter);
    classifier_steps.step(rate, model.gradients().classifier, model.weights().classifier);
    model.round();
    seconds += static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    if ((step + 1) % plan.every == 0 || step + 1 == plan.steps) {
      look(step + 1);
    }
    told(step, curve);
  }
  curve.seconds_a_step = seconds / std::max(plan.steps, 1);
  curve.rows_not_moved = part_of_equal_rows(before, model.weights().classifier, data.channels);
  curve.weights = model.weights();
  return curve;
}

/// How far `found` has moved from `expected`, relative to how far training has moved `expected` from `before`.
inline double relative_drift(std::vector<float> const& found, std::vector<float> const& expected,
                             std::vector<float> const& before) {
  distance apart;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    apart.add(static_cast<double>(found[i]) - static_cast<double>(before[i]),
              static_cast<double>(expected[i]) - static_cast<double>(before[i]));
  }
  return apart.relative();
}

/// The largest difference of two trainings' losses: of batches and of held-out tokens.
inline double largest_difference(loss_curve const& a, loss_curve const& b) {
  double largest = 0;
  for (auto const list : {&loss_curve::training, &loss_curve::held_out}) {
    for (std::size_t i = 0; i < (a.*list).size(); ++i) {
      double const apart = std::abs((a.*list)[i] - (b.*list).at(i));
      largest = apart <= largest ? largest : apart;  // a NaN stays
    }
  }
  return largest;
}

}  // namespace tessera_examples
