// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs softmax_top_k and compares it with sorted rows and exponentials in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "../support/paper_trial.hpp"
#include "softmax_top_k.hpp"

namespace tessera_examples {

struct softmax_top_k_trial {
  struct extents {
    std::int64_t rows, columns;
  };
  static constexpr int k = 8;
  static constexpr char const* name = "softmax_top_k";
  static constexpr extents usual{5, 9001}, large[] = {{4096, 128256}};
  static constexpr double bound = 1e-5;  ///< of log-sum-exps and probabilities; a wrong entry counts as 1

  template <class Executor>
  static paper_finding run(Executor const& exec, extents of) {
    auto const logits = filled<bfloat16>(exec, testing::gauss{.sigma = 3}, 1, of.rows * of.columns);
    matrix_view<bfloat16 const> const x(logits.data(), {of.rows, of.columns});
    auto lse = poisoned<float>(exec, of.rows), probabilities = poisoned<float>(exec, of.rows * k);
    auto entries = poisoned<std::int32_t>(exec, of.rows * k);
    auto const plan = softmax_top_k<k>::plan(exec, of.rows, of.columns);
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    write_top_k<k> const finish{lse, {entries.data(), {of.rows, k}}, {probabilities.data(), {of.rows, k}}};
    paper_finding found{join(of.rows, " x ", of.columns, ", top ", k),
                        seconds_of(exec, [&] { softmax_top_k<k>::reduce(exec, {}, x, finish, space); }), 0};
    found.bytes = static_cast<double>(of.rows * of.columns) * 2;
    largest_error error;
    for (std::int64_t row = 0; row < of.rows; row += divide_up(of.rows, std::int64_t{64})) {
      auto const values = here(exec, logits, row * of.columns, of.columns);
      auto const at = [&](std::size_t i) { return static_cast<double>(load(values[i])); };
      std::vector<std::size_t> order(values.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return at(a) > at(b); });
      double sum = 0;
      for (std::size_t i : order) {
        sum += std::exp(at(i) - at(order[0]));
      }
      double const expected = order.empty() ? -HUGE_VAL : at(order[0]) + std::log(sum);
      error.add(static_cast<double>(here(exec, lse, row, 1)[0]), expected);
      auto const indices = here(exec, entries, row * k, k);
      auto const likely = here(exec, probabilities, row * k, k);
      for (std::size_t i = 0; i < std::min(order.size(), std::size_t{k}); ++i) {
        error.add(indices[i] == static_cast<std::int64_t>(order[i]) ? 0 : 1, 0);
        error.add(static_cast<double>(likely[i]), std::exp(at(order[i]) - expected));
      }
    }
    found.error = error.relative();
    return found;
  }
};

}  // namespace tessera_examples
