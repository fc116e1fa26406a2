// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs skew_distillation_loss and compares it with the definition in double.
#pragma once

#include "../support/trial_matrix.hpp"
#include "skew_distillation.hpp"

namespace tessera_examples {

struct skew_distillation_trial {
  struct extents {
    std::int64_t tokens, vocabulary, channels, teacher_channels;
  };
  static constexpr char const* name = "skew_distillation";
  static constexpr extents usual{7, 1003, 24, 40}, large[] = {{8192, 128256, 4096, 4096}};
  static constexpr double bound = 2e-2;  ///< gradients by logits are rounded to bf16, and results

  template <class Executor>
  static paper_finding run(Executor const& exec, extents const& of) {
    auto const sigma = [](std::int64_t channels) { return 2 / std::sqrt(static_cast<double>(channels)); };
    trial_matrix const h(exec, 1, of.tokens, of.channels, 1), g(exec, 3, of.tokens, of.teacher_channels, 1);
    trial_matrix const c(exec, 2, of.vocabulary, of.channels, sigma(of.channels));
    trial_matrix const b(exec, 4, of.vocabulary, of.teacher_channels, sigma(of.teacher_channels));
    std::vector<float> weight;  // every fourth token does not count
    for (std::int64_t t = 0; t < of.tokens; ++t) {
      weight.push_back(t % 4 == 1 ? 0.0F : 1.0F);
    }
    double const all = static_cast<double>(of.tokens - (of.tokens + 2) / 4);
    buffer<float> weights(exec, of.tokens);
    exec.copy(weight, weights);
    auto loss = poisoned<float>(exec, 1), divergence = poisoned<float>(exec, of.tokens);
    auto by_h = poisoned<bfloat16>(exec, h.memory.size()), by_c = poisoned<bfloat16>(exec, c.memory.size());
    distillation_options const options{.temperature = 2.0F};
    auto const plan =
        skew_distillation::plan_backward(exec, {of.tokens, of.vocabulary, of.channels, of.teacher_channels}, options);
    buffer<std::byte> memory(exec, plan.bytes());
    auto const distil = [&] {
      skew_distillation_loss(exec, {h.view(), c.view(), g.view(), b.view(), weights}, options,
                             {.loss = loss, .divergence = divergence},
                             {{by_h.data(), {of.tokens, of.channels}}, {by_c.data(), {of.vocabulary, of.channels}}},
                             workspace(plan, memory));
    };
    paper_finding found{join(of.tokens, " tokens, ", of.vocabulary, " x ", of.channels, " from ", of.teacher_channels),
                        seconds_of(exec, distil), 0};
    found.flops =
        2 * static_cast<double>(of.tokens * of.vocabulary) * static_cast<double>(3 * of.channels + of.teacher_channels);
    bool const is_whole = of.tokens <= 64;  // else three tokens stand for all, and no classifier's gradient
    std::vector<double> rows(is_whole ? c.values.size() : 0);
    largest_error of_h, of_c, of_divergence, of_loss;
    double expected = 0;
    for (std::int64_t t = 0; t < of.tokens; t += is_whole ? 1 : divide_up(of.tokens, std::int64_t{3})) {
      auto const own = log_softmax_of(h, c, t, 2), other = log_softmax_of(g, b, t, 2);
      std::vector<double> slopes, state(static_cast<std::size_t>(of.channels));
      double sum = 0, value = 0;
      for (std::size_t j = 0; j < own.size(); ++j) {
        double const p = std::exp(other[j]), q = std::exp(own[j]), m = skew * p + (1 - skew) * q;
        value += p * (other[j] - std::log(m));
        slopes.push_back(-(1 - skew) * p * q / m);
        sum += slopes.back();
      }
      double const part = double{weight[static_cast<std::size_t>(t)]} / all;
      for (std::int64_t j = 0; j < of.vocabulary; ++j) {
        double const by_logit = part / 2 * (slopes[j] - std::exp(own[j]) * sum);  // 2: the temperature
        for (std::int64_t i = 0; i < of.channels; ++i) {
          state[i] += by_logit * c(j, i);
          if (is_whole) {
            rows[j * of.channels + i] += by_logit * h(t, i);
          }
        }
      }
      expected += part * value;
      of_divergence.add(double{here(exec, divergence, t, 1)[0]}, value);
      add_all(of_h, here(exec, by_h, t * of.channels, of.channels), state);
    }
    add_all(of_c, here(exec, by_c, 0, static_cast<std::int64_t>(rows.size())), rows);
    of_loss.add(double{here(exec, loss, 0, 1)[0]}, is_whole ? expected : double{here(exec, loss, 0, 1)[0]});
    bool const are_right = of_divergence.relative() <= 1e-4 && of_loss.relative() <= 1e-4;
    bool const is_of_c = std::isnan(of_c.relative()) || of_c.relative() > of_h.relative();
    found.error = are_right ? (is_of_c ? of_c : of_h).relative() : HUGE_VAL;
    return found;
  }

 private:
  static constexpr double skew = 0.1;
};

}  // namespace tessera_examples
