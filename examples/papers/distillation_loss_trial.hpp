// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs distillation_loss and compares it with the definition in double.
#pragma once

#include "../support/paper_trial.hpp"
#include "distillation_loss.hpp"

namespace tessera_examples {

struct distillation_loss_trial {
  struct extents {
    std::int64_t tokens, vocabulary, channels;
  };
  static constexpr char const* name = "distillation_loss";
  static constexpr extents usual{7, 1003, 24}, large[] = {{2048, 128256, 2048}};
  static constexpr double bound = 2e-2;  ///< gradients by logits are rounded to bf16, and gradients by hidden states

  template <class Executor>
  static paper_finding run(Executor const& exec, extents of) {
    auto const hidden = filled<bfloat16>(exec, testing::gauss{}, 1, of.tokens * of.channels);
    auto const weights = filled<bfloat16>(exec, testing::gauss{.sigma = 0.05}, 2, of.vocabulary * of.channels);
    auto const teacher = filled<bfloat16>(exec, testing::gauss{.sigma = 2}, 3, of.tokens * of.vocabulary);
    auto logits = poisoned<float>(exec, of.tokens * of.vocabulary), loss = poisoned<float>(exec, of.tokens);
    auto slopes = poisoned<bfloat16>(exec, of.tokens * of.vocabulary);
    buffer<bfloat16> turned(exec, of.vocabulary * of.channels);
    auto gradient = poisoned<bfloat16>(exec, of.tokens * of.channels);
    matrix_view<float> const s(logits.data(), {of.tokens, of.vocabulary});
    distil_rows const rows{
        s, {teacher.data(), {of.tokens, of.vocabulary}}, loss, {slopes.data(), {of.tokens, of.vocabulary}}, 1.0F};
    paper_finding found{join(of.tokens, " tokens, ", of.vocabulary, " x ", of.channels),
                        seconds_of(exec,
                                   [&] {
                                     distillation_loss(exec, {hidden.data(), {of.tokens, of.channels}},
                                                       {weights.data(), {of.vocabulary, of.channels}}, rows, s,
                                                       {turned.data(), {of.channels, of.vocabulary}},
                                                       {gradient.data(), {of.tokens, of.channels}});
                                   }),
                        0};
    found.flops = 4 * static_cast<double>(of.tokens) * static_cast<double>(of.vocabulary * of.channels);
    auto const c = here(exec, weights, 0, weights.size());
    largest_error loss_error, gradient_error;
    for (std::int64_t token = 0; token < of.tokens; token += divide_up(of.tokens, std::int64_t{3})) {
      auto const h = here(exec, hidden, token * of.channels, of.channels);
      auto const t = here(exec, teacher, token * of.vocabulary, of.vocabulary);
      std::vector<double> own, other;
      for (std::int64_t j = 0; j < of.vocabulary; ++j) {
        own.push_back(0);
        for (std::int64_t i = 0; i < of.channels; ++i) {
          own.back() += double{load(h[i])} * double{load(c[j * of.channels + i])};
        }
        other.push_back(double{load(t[j])});
      }
      double const q = log_sum_exp(own), p = log_sum_exp(other);
      double expected = 0;
      std::vector<double> sums(static_cast<std::size_t>(of.channels));
      for (std::int64_t j = 0; j < of.vocabulary; ++j) {
        expected += std::exp(other[j] - p) * (other[j] - p - own[j] + q);
        for (std::int64_t i = 0; i < of.channels; ++i) {
          sums[i] += (std::exp(own[j] - q) - std::exp(other[j] - p)) * double{load(c[j * of.channels + i])};
        }
      }
      loss_error.add(double{here(exec, loss, token, 1)[0]}, expected);
      auto const slope = here(exec, gradient, token * of.channels, of.channels);
      for (std::int64_t i = 0; i < of.channels; ++i) {
        gradient_error.add(double{load(slope[i])}, sums[i]);
      }
    }
    found.error = loss_error.relative() > 1e-4 ? HUGE_VAL : gradient_error.relative();  // losses are in fp32
    return found;
  }

 private:
  static double log_sum_exp(std::vector<double> const& values) {
    lse_reducer<double> const reducer;
    auto state = reducer.identity();
    for (double value : values) {
      reducer.push(state, value);
    }
    return reducer.value(state);
  }
};

}  // namespace tessera_examples
