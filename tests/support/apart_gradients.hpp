// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Gradients of 16 bits in a workspace without room for lower halves of all tokens' sums, against the reference in
/// double and against those of the usual workspace.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/exec/buffer.hpp>

#include "support/catch.hpp"
#include "support/loss_gradient_reference.hpp"

namespace tessera_test {

/// Which gradients are wanted, and how their memory is.
struct apart_outputs {
  bool has_hidden = true;
  bool has_classifier = true;
  std::int64_t gap = 0;  ///< elements between rows of the classifier's gradient
};

/// Bytes of a plan's region; -1: there is none.
inline std::int64_t bytes_of_region(tessera::workspace_plan const& plan, std::string const& name) {
  for (auto const& entry : plan.entries()) {
    if (entry.name == name) {
      return entry.bytes;
    }
  }
  return -1;
}

/// The least budget of a problem, in whole KiB, for which its gradients are made in several parts: plans refuse all
/// that are less. By bisection, since a refusal is an exception, which takes long.
template <class Loss, class T, class Executor>
std::int64_t least_budget(Executor const& exec, loss_problem<T> const& p) {
  tessera::linear_loss_shape const shape{p.tokens, p.vocabulary, p.channels};
  auto options = p.options;
  auto const is_refused = [&](std::int64_t kib) {
    options.workspace_budget = kib << 10;
    try {
      static_cast<void>(Loss::template plan_backward<T>(exec, shape, options));
      return false;
    } catch (tessera::value_error const&) {
      return true;
    }
  };
  std::int64_t refused = 0;
  std::int64_t enough = 1;
  for (; is_refused(enough); enough *= 2) {
    refused = enough;
  }
  while (enough - refused > 1) {
    std::int64_t const middle = (refused + enough) / 2;
    (is_refused(middle) ? refused : enough) = middle;
  }
  options.workspace_budget = enough << 10;
  auto const plan = Loss::template plan_backward<T>(exec, shape, options);
  CHECK(bytes_of_region(plan, "lower halves of hidden gradients") == 0);
  CHECK(bytes_of_region(plan, "gradient of a part of the logits") < p.tokens * p.vocabulary * 2);
  return options.workspace_budget;
}

/// Runs both passes. Gradients were NaN before.
template <class Loss, class T, class Executor>
gradient_results<T> run_apart(Executor const& exec, loss_problem<T> const& p, apart_outputs const& of) {
  auto const placed = [&](auto const& values) {
    tessera::buffer<typename std::remove_cvref_t<decltype(values)>::value_type> copy(
        exec, static_cast<std::int64_t>(values.size()));
    exec.copy(values, copy);
    return copy;
  };
  auto const hidden = placed(p.hidden);
  auto const classifier = placed(p.classifier);
  auto const labels = placed(p.labels);
  auto const bias = placed(p.bias);
  auto const weights = placed(p.weights);
  tessera::buffer<float> loss(exec, 1);
  T const poison = tessera::store<T>(std::numeric_limits<float>::quiet_NaN());
  std::int64_t const stride = p.channels + of.gap;
  std::vector<T> rows(static_cast<std::size_t>(p.vocabulary * stride), poison);
  gradient_results<T> found{{0.0F},
                            std::vector<T>(p.hidden.size(), poison),
                            {},
                            std::vector<T>(static_cast<std::size_t>(p.vocabulary), poison)};
  auto out_hidden = placed(found.hidden);
  auto out_classifier = placed(rows);
  auto out_bias = placed(found.bias);
  tessera::linear_loss_gradients<T> out{{out_hidden.data(), {p.tokens, p.channels}},
                                        {out_classifier.data(), {p.vocabulary, p.channels}, {stride, 1}},
                                        out_bias.view()};
  out.hidden = of.has_hidden ? out.hidden : tessera::matrix_view<T>{};
  out.classifier = of.has_classifier ? out.classifier : tessera::matrix_view<T>{};
  auto const plan = Loss::template plan_backward<T>(exec, {p.tokens, p.vocabulary, p.channels}, p.options);
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  tessera::workspace const space(plan, memory);
  tessera::linear_loss_inputs<T, std::int64_t> const in{{hidden.data(), {p.tokens, p.channels}},
                                                        {classifier.data(), {p.vocabulary, p.channels}},
                                                        labels.view(),
                                                        bias.view(),
                                                        weights.view()};
  Loss::forward(exec, in, p.options, {.loss = loss.view()}, space);
  Loss::backward(exec, in, p.options, {}, out, space);
  exec.copy(out_hidden, found.hidden);
  exec.copy(out_classifier, rows);
  exec.copy(out_bias, found.bias);
  exec.wait();
  std::int64_t changed = 0;
  for (std::int64_t i = 0; i < p.vocabulary * stride; ++i) {
    T const value = rows[static_cast<std::size_t>(i)];
    if (i % stride < p.channels) {
      found.classifier.push_back(value);
    } else {
      changed += std::isnan(as_double(value)) ? 0 : 1;
    }
  }
  CHECK(changed == 0);
  return found;
}

/// Checks gradients against the reference and those of the usual workspace, which has room for lower halves of all.
template <class T>
void check_apart(gradient_results<T> const& found, gradient_results<T> const& usual, gradient_reference const& expected,
                 apart_outputs const& of, double tolerance) {
  auto const check_one = [&](auto member, auto in_double, double limit) {
    double const apart = relative_distance(found.*member, expected.*in_double);
    CHECK(apart <= limit);
    CHECK(apart <= 1.05 * relative_distance(usual.*member, expected.*in_double) + 1e-6);
  };
  using results = gradient_results<T>;
  if (of.has_hidden) {
    check_one(&results::hidden, &gradient_reference::hidden, tolerance);
  }
  if (of.has_classifier) {
    check_one(&results::classifier, &gradient_reference::classifier, tolerance);
  }
  check_one(&results::bias, &gradient_reference::bias, 2 * tolerance);
}

/// Checks all ways in which gradients are made. `extents`: tokens, vocabulary, channels.
template <class Loss, class T, class Executor>
void check_all_apart(Executor const& exec, std::vector<std::int64_t> const& extents, double tolerance) {
  auto p = make_loss_problem<T>(extents[0], extents[1], extents[2], true);
  p.options.softcap = 5.0F;
  auto const expected = reference_gradient(p);
  auto const usual = run_apart<Loss, T>(exec, p, {});
  std::int64_t const least = least_budget<Loss>(exec, p);
  auto const check = [&](apart_outputs const& of, std::int64_t budget) {
    CAPTURE(p.tokens, p.vocabulary, p.channels, budget, of.has_hidden, of.has_classifier, of.gap);
    p.options.workspace_budget = budget;
    check_apart(run_apart<Loss, T>(exec, p, of), usual, expected, of, tolerance);
  };
  check({}, least);
  check({}, least + least / 4);
  check({.has_classifier = false}, least);
  check({.has_classifier = false}, least + least / 4);
  check({.has_hidden = false}, least);
  check({.gap = 8}, least);
}

}  // namespace tessera_test
