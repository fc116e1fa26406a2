// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The trainings that are compared, and what must be true of their losses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "../support/classifier_problem.hpp"
#include "../support/failure.hpp"
#include "fine_tune.hpp"

namespace tessera_examples {

/// The training of the whole classifier on 7168 tokens: twice through the text.
inline training_plan whole_plan() {
  return {.steps = 28, .batch = 512, .held_out = 1024, .every = 4, .rate = 1e-4F, .warm_up = 4};
}

/// A training that takes a second.
inline training_plan excerpt_plan() {
  return {.steps = 12, .batch = 96, .held_out = 64, .every = 4, .rate = 1e-4F, .warm_up = 2};
}

/// The paper's filter keeps all blocks of an excerpt of the likeliest entries. This one has blocks of 16 x 16, and with
/// a threshold of 1/64 leaves out many of them.
using excerpt_loss = tessera::linear_loss<tessera::loss_gemm_tile<tessera::bfloat16>, tessera::lse_reducer<float>,
                                          tessera::gradient_filter<12, 16, 16>>;
inline constexpr float excerpt_threshold = 1.0F / 64;
/// The paper's threshold for bf16.
inline constexpr float paper_threshold = tessera::gradient_filter_for<tessera::bfloat16>::threshold;
/// How far the losses of filtered trainings on the excerpt may be from those of the exact one, in nats.
inline constexpr double excerpt_bound = 0.05;

inline std::vector<float> widened(std::vector<tessera::bfloat16> const& values) {
  std::vector<float> result;
  result.reserve(values.size());
  for (tessera::bfloat16 const value : values) {
    result.push_back(tessera::load(value));
  }
  return result;
}

/// The three trainings: with exact gradients, with both filtered, and with the classifier's fully kept.
template <class Loss, class Told>
std::vector<loss_curve> trainings(classifier_problem const& data, training_plan const& plan, float threshold,
                                  Told const& told) {
  std::vector<loss_curve> curves;
  curves.push_back(fine_tune<Loss>(data, plan, "exact", {0, 0}, told));
  curves.push_back(fine_tune<Loss>(data, plan, "filtered", {threshold, threshold}, told));
  curves.push_back(fine_tune<Loss>(data, plan, "full_classifier", {threshold, 0}, told));
  return curves;
}

/// By how much training has lowered the losses of the batches that it came back to, from a batch's first step to its
/// last one, on average; 0 if it came back to none.
inline double gain_of(loss_curve const& curve, std::size_t batches) {
  std::size_t const steps = curve.training.size();
  std::size_t const again = steps > batches ? std::min(steps - batches, batches) : 0;
  double gain = 0;
  for (std::size_t step = steps - again; step < steps; ++step) {
    gain += (curve.training[step % batches] - curve.training[step]) / static_cast<double>(again);
  }
  return gain;
}

/// Throws unless every training lowers the losses of batches that it comes back to, and all losses of filtered ones are
/// within `bound` of the exact one's.
inline void check_trainings(classifier_problem const& data, training_plan const& plan,
                            std::vector<loss_curve> const& curves, double bound) {
  std::size_t const batches = held_out_tokens(data, plan).first / plan.batch;
  for (loss_curve const& curve : curves) {
    double const gain = gain_of(curve, batches);
    require(exit_code::unsound, gain > 0 || curve.training.size() <= batches, curve.name,
            ": training changed the mean loss of tokens by ", -gain, " but must lower it");
    double const apart = largest_difference(curve, curves.at(0));
    require(exit_code::unsound, apart <= bound, curve.name, ": a loss is ", apart,
            " from that with exact gradients but may be ", bound);
  }
}

}  // namespace tessera_examples
