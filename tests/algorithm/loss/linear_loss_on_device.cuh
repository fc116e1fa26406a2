// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Losses of linear classifiers and their gradients on a GPU against the reference in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/loss/linear_loss.cuh>
#include <tessera/exec/buffer.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/loss_gradient_reference.hpp"
#include "support/loss_runs.cuh"

namespace tessera_test {

/// A list of gradients on the device; null for an empty list.
inline tessera::array_view<float const> view_or_null(tessera::buffer<float> const& values) {
  return values.size() > 0 ? values.view() : tessera::array_view<float const>{};
}

/// A problem's inputs on the device.
template <class T, class Label>
struct device_problem {
  tessera::buffer<T> hidden;
  tessera::buffer<T> classifier;
  tessera::buffer<Label> labels;
  tessera::buffer<T> bias;
  tessera::buffer<float> weights;
  tessera::buffer<float> class_weights;
  std::int64_t extents[3];

  device_problem(tessera::cuda const& exec, loss_problem<T, Label> const& p)
      : hidden(to_device(exec, p.hidden)),
        classifier(to_device(exec, p.classifier)),
        labels(to_device(exec, p.labels)),
        bias(to_device(exec, p.bias)),
        weights(to_device(exec, p.weights)),
        class_weights(to_device(exec, p.class_weights)),
        extents{p.tokens, p.vocabulary, p.channels} {}

  template <class Map = tessera::identity_logits>
  tessera::linear_loss_inputs<T, Label, Map> inputs(Map const& map = {}) const {
    return {{hidden.data(), {extents[0], extents[2]}},
            {classifier.data(), {extents[1], extents[2]}},
            labels.view(),
            bias.view(),
            weights.view(),
            map,
            view_or_null(class_weights)};
  }
};

/// Loss, log-sum-exps, log-probabilities and gradients, on the host.
template <class Gradient>
struct device_results {
  std::vector<float> loss;
  std::vector<float> log_sum_exp;
  std::vector<float> log_probability;
  std::vector<Gradient> hidden;
  std::vector<Gradient> classifier;
  std::vector<Gradient> bias;
};

/// Without a gradient of the bias a filtered pass may take the vocabulary in another order. Exec: a basic_cuda, whose
/// list of architectures chooses programs. Gradients are added to `old` ones, where there are some.
template <class Loss, class Gradient, class Exec, class T, class Label, class Map = tessera::identity_logits>
device_results<Gradient> run_on_device(Exec const& runner, loss_problem<T, Label> const& p, bool with_bias = true,
                                       upstream_samples const& upstream = {}, Map const& map = {},
                                       gradient_results<Gradient> const* old = nullptr) {
  tessera::cuda const exec;
  device_problem<T, Label> const in(exec, p);
  bool const is_reduced = p.options.reduction != tessera::loss_reduction::none;
  tessera::buffer<float> loss(exec, is_reduced ? 1 : p.tokens);
  tessera::buffer<float> lse(exec, p.tokens);
  tessera::buffer<float> log_probability(exec, p.tokens);
  tessera::buffer<Gradient> hidden(exec, p.tokens * p.channels);
  tessera::buffer<Gradient> classifier(exec, p.vocabulary * p.channels);
  tessera::buffer<Gradient> bias(exec, p.vocabulary);
  Gradient const poison = tessera::store<Gradient>(NAN);
  auto const plan = Loss::template plan_backward<Gradient>(runner, {p.tokens, p.vocabulary, p.channels}, p.options);
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  tessera::workspace const space(plan, memory);
  Loss::forward(runner, in.inputs(map), p.options,
                {.loss = loss.view(), .log_sum_exp = lse.view(), .log_probability = log_probability.view()}, space);
  tessera::linear_loss_gradients<Gradient> const out{{hidden.data(), {p.tokens, p.channels}},
                                                     {classifier.data(), {p.vocabulary, p.channels}},
                                                     with_bias ? bias.view() : tessera::array_view<Gradient>{},
                                                     old != nullptr,
                                                     old != nullptr,
                                                     old != nullptr};
  auto const fill = [&](tessera::buffer<Gradient>& values, std::vector<Gradient> gradient_results<Gradient>::*of_old) {
    exec.copy(old != nullptr ? old->*of_old : std::vector<Gradient>(static_cast<std::size_t>(values.size()), poison),
              values);
  };
  fill(hidden, &gradient_results<Gradient>::hidden);
  fill(classifier, &gradient_results<Gradient>::classifier);
  fill(bias, &gradient_results<Gradient>::bias);
  tessera::buffer<float> const by_loss = to_device(exec, upstream.loss);
  tessera::buffer<float> const by_lse = to_device(exec, upstream.log_sum_exp);
  tessera::buffer<float> const by_entropy = to_device(exec, upstream.entropy);
  Loss::backward(runner, in.inputs(map), p.options,
                 {view_or_null(by_loss), view_or_null(by_lse), view_or_null(by_entropy)}, out, space);
  device_results<Gradient> results{to_host(exec, loss),   to_host(exec, lse),        to_host(exec, log_probability),
                                   to_host(exec, hidden), to_host(exec, classifier), to_host(exec, bias)};
  runner.wait();
  return results;
}

/// How many values of the forward pass are wrong.
template <class Gradient, class T, class Label>
std::int64_t wrong_losses(loss_problem<T, Label> const& p, device_results<Gradient> const& found, double tolerance) {
  loss_reference const expected = reference_loss(p);
  auto const is_wrong = [&](float value, double wanted) {
    return std::fabs(static_cast<double>(value) - wanted) <= tolerance * (1 + std::fabs(wanted)) ? 0 : 1;
  };
  bool const is_reduced = p.options.reduction != tessera::loss_reduction::none;
  std::int64_t wrong = is_reduced ? is_wrong(found.loss[0], expected.total) : 0;
  for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
    wrong += is_wrong(found.log_sum_exp[i], expected.tokens[i].log_sum_exp);
    wrong += is_wrong(found.log_probability[i], expected.tokens[i].log_probability);
    wrong += is_reduced ? 0 : is_wrong(found.loss[i], expected.tokens[i].loss);
  }
  return wrong;
}

template <class Loss, class Gradient, class Exec = tessera::cuda, class T, class Label>
void check_on_device(loss_problem<T, Label> const& p, double tolerance, double gradient_tolerance,
                     Exec const& exec = {}) {
  CAPTURE(p.tokens, p.vocabulary, p.channels);
  auto const found = run_on_device<Loss, Gradient>(exec, p);
  CHECK(wrong_losses(p, found, tolerance) == 0);
  auto const expected = reference_gradient(p);
  CHECK(relative_distance(found.hidden, expected.hidden) <= gradient_tolerance);
  CHECK(relative_distance(found.classifier, expected.classifier) <= gradient_tolerance);
  CHECK(relative_distance(found.bias, expected.bias) <= 2 * gradient_tolerance);  // sums of what is rounded
}

/// Gradients that a run has left, in double.
inline gradient_reference doubles_of_results(device_results<float> const& found) {
  return {doubles_of(found.hidden), doubles_of(found.classifier), doubles_of(found.bias)};
}

/// Adds gradients to old ones on the device.
template <class Loss, class Exec = tessera::cuda, class T, class Label>
void check_added_on_device(loss_problem<T, Label> const& p, double tolerance, bool with_bias = true,
                           upstream_samples const& upstream = {}, Exec const& exec = {}) {
  CAPTURE(p.tokens, p.vocabulary, p.channels, with_bias);
  auto const expected = reference_gradient(p, upstream);
  auto const old = old_gradients_for(expected);
  auto const found = run_on_device<Loss, float>(exec, p, with_bias, upstream, tessera::identity_logits{}, &old);
  auto const sum = added_to(old, expected);
  CHECK(relative_distance(found.hidden, sum.hidden) <= tolerance);
  CHECK(relative_distance(found.classifier, sum.classifier) <= tolerance);
  CHECK(changed_without_label(p, found.hidden, old.hidden) == 0);
  if (with_bias) {
    CHECK(relative_distance(found.bias, sum.bias) <= 2 * tolerance);
  } else {
    CHECK(found.bias == old.bias);
  }
}

}  // namespace tessera_test
