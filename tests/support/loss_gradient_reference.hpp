// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Gradients of the loss of a linear classifier by the formulas, in double, and the measures to compare with them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/loss_reference.hpp"

namespace tessera_test {

/// Upstream gradients, of the outputs; empty for outputs that have none.
struct upstream_samples {
  std::vector<float> loss;
  std::vector<float> log_sum_exp;
  std::vector<float> entropy;

  tessera::loss_upstream views() const { return {loss, log_sum_exp, entropy}; }
};

struct gradient_reference {
  std::vector<double> hidden;
  std::vector<double> classifier;
  std::vector<double> bias;
};

/// The scalar whose gradients are computed.
template <class T, class Label>
double reference_objective(loss_problem<T, Label> const& p, upstream_samples const& upstream) {
  loss_reference const reference = reference_loss(p);
  bool const is_reduced = p.options.reduction != tessera::loss_reduction::none;
  double objective = !is_reduced ? 0 : reference.total * (upstream.loss.empty() ? 1.0 : upstream.loss[0]);
  for (std::size_t i = 0; i < reference.tokens.size(); ++i) {
    token_reference const& token = reference.tokens[i];
    objective += is_reduced ? 0 : token.loss * (upstream.loss.empty() ? 1.0 : upstream.loss[i]);
    objective += upstream.log_sum_exp.empty() ? 0 : token.log_sum_exp * upstream.log_sum_exp[i];
    objective += upstream.entropy.empty() ? 0 : token.entropy * upstream.entropy[i];
  }
  return objective;
}

/// Adds the contribution of `token` to the gradients.
template <class T, class Label>
void add_reference_gradient(loss_problem<T, Label> const& p, loss_operands const& of, token_reference const& r,
                            upstream_samples const& upstream, double scale, std::int64_t token,
                            gradient_reference& gradient) {
  if (r.label < 0) {
    return;
  }
  auto const i = static_cast<std::size_t>(token);
  bool const is_reduced = p.options.reduction != tessera::loss_reduction::none;
  double const own = upstream.loss.empty() ? 1.0 : upstream.loss[is_reduced ? 0 : i];
  double const by_loss = scale * own * r.weight;
  double const by_lse = (upstream.log_sum_exp.empty() ? 0.0 : upstream.log_sum_exp[i]) +
                        by_loss * 2 * static_cast<double>(p.options.z_factor) * r.log_sum_exp;
  double const by_entropy = upstream.entropy.empty() ? 0.0 : upstream.entropy[i];
  double const smoothing = static_cast<double>(p.options.smoothing);
  double const temperature = static_cast<double>(p.options.temperature);
  double const cap = static_cast<double>(p.options.softcap);
  for (std::int64_t entry = 0; entry < p.vocabulary; ++entry) {
    auto const j = static_cast<std::size_t>(entry);
    double const scaled = r.scaled[j];
    double const logit = r.logits[j];
    double const softmax = std::exp(logit - r.log_sum_exp);
    double const wanted = smoothing / static_cast<double>(p.vocabulary) + (entry == r.label ? 1 - smoothing : 0.0);
    bool const is_masked = scaled == -std::numeric_limits<double>::infinity();
    double const information = softmax == 0 ? 0.0 : softmax * (logit - r.log_sum_exp + r.entropy);
    double const slope = (cap > 0 ? 1 - std::pow(scaled * temperature / cap, 2) : 1.0) / temperature *
                         (p.map.slope != nullptr && !is_masked ? p.map.slope(scaled, token, entry) : 1.0);
    double const by_sum = slope * (by_loss * (softmax - wanted) + by_lse * softmax - by_entropy * information);
    gradient.bias[j] += by_sum;
    std::int64_t const own_row = token * p.channels;
    std::int64_t const row = entry * p.channels;
    add_row(gradient.hidden.data() + own_row, by_sum, of.classifier.data() + row, p.channels);
    add_row(gradient.classifier.data() + row, by_sum, of.hidden.data() + own_row, p.channels);
  }
}

template <class T, class Label>
gradient_reference reference_gradient(loss_problem<T, Label> const& p, upstream_samples const& upstream = {}) {
  gradient_reference gradient{std::vector<double>(p.hidden.size()), std::vector<double>(p.classifier.size()),
                              std::vector<double>(static_cast<std::size_t>(p.vocabulary))};
  loss_operands const of(p);
  loss_reference const loss = reference_loss(p, of);
  double const weight = loss.weight;
  bool const is_mean = p.options.reduction == tessera::loss_reduction::mean;
  double const scale = !is_mean ? 1.0 : weight != 0 ? 1 / weight : 0.0;
  for (std::int64_t token = 0; token < p.tokens; ++token) {
    add_reference_gradient(p, of, loss.tokens[static_cast<std::size_t>(token)], upstream, scale, token, gradient);
  }
  return gradient;
}

/// Gradients that a run has left, in vectors.
template <class Gradient>
struct gradient_results {
  std::vector<float> loss;
  std::vector<Gradient> hidden;
  std::vector<Gradient> classifier;
  std::vector<Gradient> bias;
};

/// Numbers that a run finds in its results and adds to: random ones, about as large as the gradients.
inline std::vector<float> old_values_for(std::vector<double> const& gradient, std::uint64_t seed) {
  double squares = 0;
  for (double const value : gradient) {
    squares += value * value;
  }
  double const size = squares > 0 ? std::sqrt(squares / static_cast<double>(gradient.size())) : 1.0;
  std::vector<float> old;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    old.push_back(static_cast<float>(size * static_cast<double>(tessera::testing::gauss{}.value(seed, i))));
  }
  return old;
}

inline gradient_results<float> old_gradients_for(gradient_reference const& expected) {
  return {{},
          old_values_for(expected.hidden, 51),
          old_values_for(expected.classifier, 52),
          old_values_for(expected.bias, 53)};
}

/// What must be there after gradients were added to old ones.
inline gradient_reference added_to(gradient_results<float> const& old, gradient_reference sum) {
  auto const add = [](std::vector<double>& to, std::vector<float> const& values) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] += static_cast<double>(values[i]);
    }
  };
  add(sum.hidden, old.hidden);
  add(sum.classifier, old.classifier);
  add(sum.bias, old.bias);
  return sum;
}

/// How many values of tokens without a label are not bit for bit what they were.
template <class T, class Label>
std::size_t changed_without_label(loss_problem<T, Label> const& p, std::vector<float> const& found,
                                  std::vector<float> const& old) {
  std::size_t changed = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    bool const counts = reference_label(p, static_cast<std::int64_t>(i) / p.channels) >= 0;
    changed += !counts && tessera::to_bits(found[i]) != tessera::to_bits(old[i]) ? 1U : 0U;
  }
  return changed;
}

/// Runs both passes with their own workspace, `times` times the second one. Gradients overwrite `found`, or are added
/// to it.
template <class Loss, class Gradient, class Executor, class T, class Label, class Map>
gradient_results<Gradient> run_gradients_into(Executor const& exec, loss_problem<T, Label> const& p,
                                              upstream_samples const& upstream, Map const& map,
                                              gradient_results<Gradient> found, bool accumulates, int times = 1) {
  loss_results results(p.tokens, p.options.reduction);
  auto const plan = Loss::template plan_backward<Gradient>(exec, {p.tokens, p.vocabulary, p.channels}, p.options);
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  tessera::workspace const space(plan, memory);
  Loss::forward(exec, p.inputs(map), p.options, {.loss = results.loss}, space);
  tessera::linear_loss_gradients<Gradient> const out{{found.hidden.data(), {p.tokens, p.channels}},
                                                     {found.classifier.data(), {p.vocabulary, p.channels}},
                                                     found.bias,
                                                     accumulates,
                                                     accumulates,
                                                     accumulates};
  for (int time = 0; time < times; ++time) {
    Loss::backward(exec, p.inputs(map), p.options, upstream.views(), out, space);
  }
  found.loss = results.loss;
  return found;
}

/// Runs both passes with their own workspace.
template <class Loss, class Gradient, class Executor, class T, class Label, class Map>
gradient_results<Gradient> run_gradients(Executor const& exec, loss_problem<T, Label> const& p,
                                         upstream_samples const& upstream, Map const& map) {
  Gradient const untouched = tessera::store<Gradient>(-77.0F);
  return run_gradients_into<Loss, Gradient>(exec, p, upstream, map,
                                            {{},
                                             std::vector<Gradient>(p.hidden.size(), untouched),
                                             std::vector<Gradient>(p.classifier.size(), untouched),
                                             std::vector<Gradient>(static_cast<std::size_t>(p.vocabulary), untouched)},
                                            false);
}

/// Runs both passes of a loss without a map of logits, `times` times the second one, and adds gradients to old ones.
template <class Loss, class Executor, class T, class Label>
gradient_results<float> add_gradients(Executor const& exec, loss_problem<T, Label> const& p,
                                      gradient_results<float> const& old, upstream_samples const& upstream = {},
                                      int times = 1) {
  return run_gradients_into<Loss, float>(exec, p, upstream, tessera::identity_logits{}, old, true, times);
}

/// Runs both passes of a loss without a map of logits.
template <class Loss, class Gradient, class Executor, class T, class Label>
gradient_results<Gradient> run_gradients(Executor const& exec, loss_problem<T, Label> const& p,
                                         upstream_samples const& upstream = {}) {
  return run_gradients<Loss, Gradient>(exec, p, upstream, tessera::identity_logits{});
}

/// The length of the difference, relative to the length of what was expected; NaN if there is a NaN.
template <class Gradient>
double relative_distance(std::vector<Gradient> const& found, std::vector<double> const& expected) {
  double apart = 0;
  double length = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double const difference = as_double(found[i]) - expected[i];
    apart += difference * difference;
    length += expected[i] * expected[i];
  }
  return apart == 0 ? 0 : std::sqrt(apart / (length > 0 ? length : 1e-30));
}

/// Whether one list is twice the other, but for rounding: gradients that were added to those that were there.
inline bool is_twice(std::vector<float> const& twice, std::vector<float> const& once) {
  std::vector<double> expected = doubles_of(once);
  for (double& value : expected) {
    value *= 2.0;
  }
  return relative_distance(twice, expected) <= 1e-6;
}

/// The largest of the three gradients' distances.
template <class Gradient>
double worst_distance(gradient_results<Gradient> const& found, gradient_reference const& expected) {
  double worst = 0;
  for (double const distance :
       {relative_distance(found.hidden, expected.hidden), relative_distance(found.classifier, expected.classifier),
        relative_distance(found.bias, expected.bias)}) {
    worst = std::isnan(worst) || distance <= worst ? worst : distance;
  }
  return worst;
}

}  // namespace tessera_test
