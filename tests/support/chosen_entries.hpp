// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Chosen entries of tokens, and their log-probabilities in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/testing/generators.hpp>

#include "support/loss_reference.hpp"

namespace tessera_test {

/// Chosen entries, tokens x k, of which about one in six is none, and log-sum-exps of tokens, which need not be those
/// of the problem.
template <class Entry>
struct chosen_entries {
  std::int64_t k;
  std::vector<Entry> entries;
  std::vector<float> log_sum_exp;

  template <class T, class Label>
  chosen_entries(loss_problem<T, Label> const& p, std::int64_t of_token) : k(of_token) {
    for (std::int64_t i = 0; i < p.tokens * k; ++i) {
      std::uint64_t const word = tessera::testing::hash(51, static_cast<std::uint64_t>(i));
      auto const entry = static_cast<Entry>((word >> 8) % static_cast<std::uint64_t>(p.vocabulary));
      entries.push_back(word % 6 == 0 ? static_cast<Entry>(word % 12 == 0 ? -1 : -100) : entry);
    }
    for (std::int64_t i = 0; i < p.tokens; ++i) {
      log_sum_exp.push_back(tessera::testing::uniform{2.0, 9.0}.value(52, static_cast<std::uint64_t>(i)));
    }
  }
};

/// How many results differ from those in double: none is 0, and an entry that is none of the vocabulary NaN.
template <class T, class Label, class Entry>
std::int64_t wrong_chosen(loss_problem<T, Label> const& p, chosen_entries<Entry> const& chosen,
                          std::vector<float> const& found, double tolerance) {
  loss_operands const operands(p);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < chosen.entries.size(); ++i) {
    auto const token = static_cast<std::int64_t>(i) / chosen.k;
    auto const entry = static_cast<std::int64_t>(chosen.entries[i]);
    if (entry < 0) {
      wrong += found[i] == 0.0F ? 0 : 1;
    } else if (entry >= p.vocabulary) {
      wrong += std::isnan(found[i]) ? 0 : 1;
    } else {
      double const lse = static_cast<double>(chosen.log_sum_exp[static_cast<std::size_t>(token)]);
      double const expected = reference_mapped(p, reference_scaled(p, operands, token, entry), token, entry) - lse;
      double const value = static_cast<double>(found[i]);
      bool const is_near = std::fabs(value - expected) <= tolerance * (1 + std::fabs(expected) + std::fabs(lse));
      wrong += is_near || value == expected || (std::isnan(value) && std::isnan(expected)) ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace tessera_test
