// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Losses of soft targets and their gradients on a GPU against the reference in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/soft_target_loss.hpp>
#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "support/soft_target_reference.hpp"

namespace tessera_test {

/// What both passes leave.
template <class Gradient>
struct target_results {
  loss_results values;
  gradient_results<Gradient> gradients;
  std::string message;  ///< of wait()
};

/// Runs both passes, `times` times the second one. Without a gradient of the bias a filtered pass may take the
/// vocabulary in another order. Gradients are added to `old` ones, where there are some; those without memory there are
/// not wanted.
template <class Loss, class Gradient, class Exec, class T, class Entry, class Map = tessera::identity_logits>
target_results<Gradient> run_targets_on_device(Exec const& runner, target_problem<T, Entry> const& p,
                                               bool with_bias = true, upstream_samples const& upstream = {},
                                               Map const& map = {}, gradient_results<Gradient> const* old = nullptr,
                                               int times = 1) {
  using loss = tessera::soft_target_loss<Loss>;
  using reducer = typename loss::label_loss::reducer_type;
  tessera::cuda const exec;
  auto const& base = p.base;
  device_problem<T, std::int64_t> const in(exec, base);
  auto const entries = to_device(exec, p.entries);
  auto const entry_weights = to_device(exec, p.entry_weights);
  tessera::soft_target_inputs<T, Entry, Map> const inputs{{in.hidden.data(), {base.tokens, base.channels}},
                                                          {in.classifier.data(), {base.vocabulary, base.channels}},
                                                          {entries.data(), {base.tokens, p.k}},
                                                          {entry_weights.data(), {base.tokens, p.k}},
                                                          in.bias.view(),
                                                          in.weights.view(),
                                                          map};
  target_results<Gradient> results{
      loss_results(base.tokens, base.options.reduction), old != nullptr ? *old : untouched_gradients<Gradient>(p), {}};
  loss_results& values = results.values;
  auto loss_there = to_device(exec, values.loss);
  auto lse = to_device(exec, values.log_sum_exp);
  auto log_probability = to_device(exec, values.log_probability);
  auto entropy = to_device(exec, values.entropy);
  auto prediction = to_device(exec, values.prediction);
  auto accuracy = to_device(exec, values.accuracy);
  auto count = to_device(exec, values.count);
  auto hidden = to_device(exec, results.gradients.hidden);
  auto classifier = to_device(exec, results.gradients.classifier);
  auto bias = to_device(exec, results.gradients.bias);
  auto const by_loss = to_device(exec, upstream.loss);
  auto const by_lse = to_device(exec, upstream.log_sum_exp);
  auto const by_entropy = to_device(exec, upstream.entropy);
  auto const plan = loss::template plan_backward<Gradient>(runner, p.shape(), base.options);
  auto memory = to_device(exec, std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}));
  tessera::workspace const space(plan, memory);
  tessera::linear_loss_outputs out{.loss = loss_there, .log_sum_exp = lse, .log_probability = log_probability};
  out.labelled_count = count;
  if constexpr (tessera::has_reducer<tessera::entropy_reducer<float>, reducer>) {
    out.entropy = entropy;
    out.prediction = prediction;
    out.accuracy = accuracy;
  }
  bool const accumulates = old != nullptr;
  tessera::linear_loss_gradients<Gradient> const gradients{
      matrix_or_null(hidden.data(), hidden.size(), base.tokens, base.channels),
      matrix_or_null(classifier.data(), classifier.size(), base.vocabulary, base.channels),
      with_bias ? bias.view() : tessera::array_view<Gradient>{},
      accumulates,
      accumulates,
      accumulates};
  exec.wait();
  loss::forward(runner, inputs, base.options, out, space);
  for (int time = 0; time < times; ++time) {
    loss::backward(runner, inputs, base.options,
                   {view_or_null(by_loss), view_or_null(by_lse), view_or_null(by_entropy)}, gradients, space);
  }
  try {
    runner.wait();
  } catch (std::exception const& error) {
    results.message = error.what();
  }
  results.values.loss = to_host(exec, loss_there);
  results.values.log_sum_exp = to_host(exec, lse);
  results.values.log_probability = to_host(exec, log_probability);
  results.values.entropy = to_host(exec, entropy);
  results.values.prediction = to_host(exec, prediction);
  results.values.accuracy = to_host(exec, accuracy);
  results.values.count = to_host(exec, count);
  results.gradients.hidden = to_host(exec, hidden);
  results.gradients.classifier = to_host(exec, classifier);
  results.gradients.bias = to_host(exec, bias);
  return results;
}

/// Compares what both passes leave with the formulas.
template <class Loss, class Gradient, class Exec, class T, class Entry, class Map = tessera::identity_logits>
target_results<Gradient> check_targets_on_device(Exec const& exec, target_problem<T, Entry> const& p,
                                                 double gradient_tolerance, bool with_bias = true,
                                                 upstream_samples const& upstream = {}, Map const& map = {}) {
  CAPTURE(p.base.tokens, p.base.vocabulary, p.base.channels, p.k, p.base.options.workspace_budget);
  auto const found = run_targets_on_device<Loss, Gradient>(exec, p, with_bias, upstream, map);
  CHECK(found.message == "");
  auto const expected = reference_targets(p, upstream);
  CHECK(wrong_targets(expected, found.values, p.base.options.reduction != tessera::loss_reduction::none, 2e-5) == 0);
  CHECK(relative_distance(found.gradients.hidden, expected.gradient.hidden) <= gradient_tolerance);
  CHECK(relative_distance(found.gradients.classifier, expected.gradient.classifier) <= gradient_tolerance);
  if (with_bias) {
    CHECK(relative_distance(found.gradients.bias, expected.gradient.bias) <= 2 * gradient_tolerance);
  }
  return found;
}

/// A problem in which 64 entries have nearly all of the probability, and targets lie in few blocks of 128 entries, so
/// that a filter leaves out most blocks, and nothing that can be seen in gradients.
template <class T>
target_problem<T> problem_with_few_blocks(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels,
                                          std::int64_t k) {
  auto p = make_target_problem<T>(tokens, vocabulary, channels, k, true);
  for (std::size_t entry = 64; entry < p.base.bias.size(); ++entry) {
    p.base.bias[entry] = tessera::store<T>(-30.0F);
  }
  for (std::size_t i = 0; i < p.entries.size(); ++i) {
    std::int32_t const first = (i % 3 == 0 ? 3 : i % 3 == 1 ? 11 : 17) * 128;
    p.entries[i] = p.entries[i] < 0 ? p.entries[i] : first + p.entries[i] % 128;
  }
  return p;
}

/// Upstream gradients of all kinds.
inline upstream_samples upstream_of_targets(std::int64_t tokens, bool is_reduced, bool with_entropies) {
  upstream_samples upstream;
  for (std::uint64_t token = 0; token < static_cast<std::uint64_t>(tokens); ++token) {
    upstream.loss.push_back(tessera::testing::uniform{-1.0, 2.0}.value(71, token));
    upstream.log_sum_exp.push_back(tessera::testing::uniform{-0.3, 0.3}.value(72, token));
    if (with_entropies) {
      upstream.entropy.push_back(tessera::testing::uniform{-0.3, 0.3}.value(73, token));
    }
  }
  upstream.loss.resize(is_reduced ? 1 : upstream.loss.size());
  return upstream;
}

}  // namespace tessera_test
