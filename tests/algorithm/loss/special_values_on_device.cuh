// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Losses of NaNs, infinities and huge logits on a GPU must be of the same kind as on the CPU: a number, an infinity of
/// the same sign, or no number.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"

namespace tessera_test {

using namespace tessera;

template <class T>
using special_loss_problem = loss_problem<T, std::int64_t>;

/// Both passes on the CPU, with the same outputs.
template <class Loss, class T>
device_results<T> special_results_on_host(special_loss_problem<T> const& p, bool with_bias) {
  cpu const exec;
  loss_results results(p.tokens, p.options.reduction);
  device_results<T> found;
  found.hidden.resize(p.hidden.size());
  found.classifier.resize(p.classifier.size());
  found.bias.resize(static_cast<std::size_t>(p.vocabulary));
  auto const plan = Loss::template plan_backward<T>(exec, {p.tokens, p.vocabulary, p.channels}, p.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  Loss::forward(exec, p.inputs(), p.options,
                {.loss = results.loss, .log_sum_exp = results.log_sum_exp, .log_probability = results.log_probability},
                space);
  linear_loss_gradients<T> const out{{found.hidden.data(), {p.tokens, p.channels}},
                                     {found.classifier.data(), {p.vocabulary, p.channels}},
                                     with_bias ? array_view<T>(found.bias) : array_view<T>{}};
  Loss::backward(exec, p.inputs(), p.options, {}, out, space);
  exec.wait();
  found.loss = results.loss;
  found.log_sum_exp = results.log_sum_exp;
  found.log_probability = results.log_probability;
  return found;
}

enum class value_kind { number, plus_infinity, minus_infinity, not_a_number };

template <class T>
value_kind kind_of(T stored) {
  auto const value = static_cast<float>(load(stored));
  return std::isnan(value)    ? value_kind::not_a_number
         : !std::isinf(value) ? value_kind::number
         : value > 0          ? value_kind::plus_infinity
                              : value_kind::minus_infinity;
}

inline std::vector<double> in_double(std::vector<bfloat16> const& values) {
  std::vector<double> wide;
  for (bfloat16 const value : values) {
    wide.push_back(as_double(value));
  }
  return wide;
}

/// The first value that is of another kind; empty if there is none.
template <class T>
std::string first_apart(char const* what, std::vector<T> const& found, std::vector<T> const& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (kind_of(found[i]) != kind_of(expected[i])) {
      return std::string(what) + " " + std::to_string(i) + ": " + std::to_string(static_cast<float>(load(found[i]))) +
             " and not " + std::to_string(static_cast<float>(load(expected[i])));
    }
  }
  return "";
}

/// Says how many gradients are NaN, so that tests know that there was something to find.
template <class Loss, class Exec = tessera::cuda, class T>
std::size_t check_kinds(special_loss_problem<T> const& p, bool with_bias = true, Exec const& exec = {}) {
  auto const found = run_on_device<Loss, T>(exec, p, with_bias);
  auto const expected = special_results_on_host<Loss, T>(p, with_bias);
  CHECK(first_apart("loss", found.loss, expected.loss) == "");
  CHECK(first_apart("log-sum-exp", found.log_sum_exp, expected.log_sum_exp) == "");
  CHECK(first_apart("log-probability", found.log_probability, expected.log_probability) == "");
  CHECK(first_apart("hidden gradient", found.hidden, expected.hidden) == "");
  CHECK(first_apart("classifier gradient", found.classifier, expected.classifier) == "");
  if (with_bias) {
    CHECK(first_apart("bias gradient", found.bias, expected.bias) == "");
  }
  std::size_t nans = 0;
  for (std::vector<T> const* values : {&expected.hidden, &expected.classifier}) {
    for (T const value : *values) {
      nans += kind_of(value) == value_kind::not_a_number ? 1U : 0U;
    }
  }
  return nans;
}

/// Checks all ways that sm_90a has: exact, in parts, with kept softmaxes, filtered in both orders, with more
/// statistics.
template <class T>
std::size_t check_kinds_of_all_ways(special_loss_problem<T> p) {
  using exact = exact_cross_entropy_of<T>;
  std::size_t const nans = check_kinds<exact>(p);
  p.options.workspace_budget = std::int64_t{64} << 20;
  CHECK(check_kinds<exact>(p) == nans);
  CHECK(check_kinds<exact_cross_entropy_of<T, loss_statistics>>(p) == nans);
  p.options.workspace_budget = 0;
  p.options.reduction = loss_reduction::none;
  CHECK(check_kinds<exact>(p) == nans);
  check_kinds<cut_cross_entropy_of<T>>(p);
  check_kinds<cut_cross_entropy_of<T>>(p, false);
  check_kinds<cut_cross_entropy_of<T, loss_statistics>>(p, false);
  return nans;
}

template <class T>
special_loss_problem<T> special_problem() {
  auto p = make_loss_problem<T>(200, 330, 32, true);
  for (T& value : p.classifier) {
    value = static_cast<float>(load(value)) == 0.0F ? store<T>(0.25F) : value;  // no products that are NaN by chance
  }
  for (T& value : p.hidden) {
    value = static_cast<float>(load(value)) == 0.0F ? store<T>(0.25F) : value;
  }
  return p;
}

template <class T>
void check_special_values() {
  for (float const special : {NAN, INFINITY, -INFINITY}) {
    CAPTURE(special);
    auto in_hidden = special_problem<T>();
    for (std::size_t const token : {3U, 50U, 128U, 199U}) {  // with a label or without
      in_hidden.hidden[token * 32 + token % 32] = store<T>(special);
    }
    CHECK(check_kinds_of_all_ways(in_hidden) > 0);
    auto in_classifier = special_problem<T>();
    in_classifier.classifier[77 * 32 + 4] = store<T>(special);
    CHECK(check_kinds_of_all_ways(in_classifier) > 0);
    auto in_bias = special_problem<T>();
    in_bias.bias[300] = store<T>(special);
    CHECK((check_kinds_of_all_ways(in_bias) > 0) == !(special < 0));  // a masked entry makes none
    in_hidden.options.softcap = 5.0F;  // kept softmaxes do not tell exactly how flat the cap is at an infinity
    check_kinds<exact_cross_entropy_of<T>>(in_hidden);
    check_kinds<exact_cross_entropy_of<T, loss_statistics>>(in_hidden);
    in_hidden.options.softcap = 0.0F;
    in_hidden.options.smoothing = 0.1F;
    check_kinds<exact_cross_entropy_of<T, loss_statistics>>(in_hidden);
  }
}

}  // namespace tessera_test
