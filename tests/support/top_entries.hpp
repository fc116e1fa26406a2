// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The likeliest entries of tokens, as a loss has found them, against logits in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "support/loss_reference.hpp"

namespace tessera_test {

/// What a write_top_entries<K> has written, tokens x K; `untouched` before.
struct top_results {
  static constexpr std::int32_t untouched = -77;
  std::vector<std::int32_t> entries;
  std::vector<float> log_probabilities;

  top_results(std::int64_t tokens, int k)
      : entries(static_cast<std::size_t>(tokens * k), untouched),
        log_probabilities(entries.size(), static_cast<float>(untouched)) {}
};

/// Logits that are exact in fp32 whoever adds them up, and of which many are equal: of small whole numbers.
template <class T, class Label>
void round_operands(loss_problem<T, Label>& problem) {
  auto const round_all = [](std::vector<T>& values, float step) {
    for (T& value : values) {
      float const whole = std::nearbyint(static_cast<float>(tessera::load(value)) / step);
      value = tessera::store<T>(step * std::fmin(std::fmax(whole, -4.0F), 4.0F));
    }
  };
  round_all(problem.hidden, 0.5F);
  round_all(problem.classifier, 0.125F);
  round_all(problem.bias, 0.25F);
}

/// How many entries and log-probabilities are wrong. Where logits are not exact, an entry is right if its logit is as
/// far from that of its place as rounding may move it.
template <class T, class Label>
std::int64_t wrong_top_entries(loss_problem<T, Label> const& p, top_results const& found, int k, double tolerance,
                               bool are_exact) {
  loss_reference const expected = reference_loss(p);
  std::int64_t wrong = 0;
  for (std::size_t token = 0; token < expected.tokens.size(); ++token) {
    token_reference const& of = expected.tokens[token];
    std::vector<std::int32_t> order(of.logits.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = static_cast<std::int32_t>(i);
    }
    auto const logit = [&](std::int32_t entry) { return of.logits[static_cast<std::size_t>(entry)]; };
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logit(a) > logit(b); });
    std::vector<bool> seen(order.size());
    for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
      std::int32_t const entry = found.entries[token * static_cast<std::size_t>(k) + i];
      float const value = found.log_probabilities[token * static_cast<std::size_t>(k) + i];
      if (of.label < 0) {
        wrong += entry == top_results::untouched && value == static_cast<float>(top_results::untouched) ? 0 : 1;
      } else if (i >= order.size()) {
        wrong += entry == -1 && value == -tessera::infinity ? 0 : 1;
      } else if (entry < 0 || entry >= static_cast<std::int32_t>(order.size()) ||
                 seen[static_cast<std::size_t>(entry)]) {
        ++wrong;
      } else {
        seen[static_cast<std::size_t>(entry)] = true;
        double const slack = tolerance * (1 + std::fabs(of.log_sum_exp));
        auto const is_near = [&](double a, double b) { return a == b || std::fabs(a - b) <= slack; };
        wrong += is_near(static_cast<double>(value), logit(entry) - of.log_sum_exp) ? 0 : 1;
        wrong += are_exact ? (entry == order[i] ? 0 : 1) : (is_near(logit(entry), logit(order[i])) ? 0 : 1);
      }
    }
  }
  return wrong;
}

}  // namespace tessera_test
