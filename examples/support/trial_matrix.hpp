// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Random matrices of trials, with a copy for the host, and softmaxes of their products in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/matrix_view.hpp>

#include "paper_trial.hpp"

namespace tessera_examples {

/// A matrix of N(0, sigma^2) in bfloat16.
struct trial_matrix {
  std::int64_t rows, columns;
  buffer<bfloat16> memory;
  std::vector<bfloat16> values;

  template <class Executor>
  trial_matrix(Executor const& exec, std::uint64_t seed, std::int64_t row_count, std::int64_t column_count,
               double sigma)
      : rows(row_count),
        columns(column_count),
        memory(filled<bfloat16>(exec, testing::gauss{.sigma = sigma}, seed, rows * columns)),
        values(here(exec, memory, 0, rows * columns)) {}
  [[nodiscard]] matrix_view<bfloat16 const> view() const { return {memory.data(), {rows, columns}}; }
  [[nodiscard]] double operator()(std::int64_t row, std::int64_t column) const {
    return double{load(values[static_cast<std::size_t>(row * columns + column)])};
  }
};

/// The log-softmax of a row of states times all rows of a classifier, over a temperature.
inline std::vector<double> log_softmax_of(trial_matrix const& states, trial_matrix const& classifier, std::int64_t row,
                                          double temperature) {
  std::vector<double> logits;
  for (std::int64_t entry = 0; entry < classifier.rows; ++entry) {
    double sum = 0;
    for (std::int64_t i = 0; i < classifier.columns; ++i) {
      sum += states(row, i) * classifier(entry, i);
    }
    logits.push_back(sum / temperature);
  }
  double const largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double const logit : logits) {
    sum += std::exp(logit - largest);
  }
  for (double& logit : logits) {
    logit -= largest + std::log(sum);
  }
  return logits;
}

/// Adds the differences of lists that are equally long.
inline void add_all(largest_error& errors, std::vector<bfloat16> const& found, std::vector<double> const& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    errors.add(double{load(found[i])}, expected[i]);
  }
}

}  // namespace tessera_examples
