// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks attention with terms added to scores, biases and the scores of mean queries, on CUDA devices against the
/// portable program on the CPU.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithm/attention/attention_on_device.cuh"

namespace tessera_test {

inline constexpr tessera::attention_options causal{.is_causal = true};

/// Normal biases, every fifth minus infinity, a whole row of them, and an element of choice.
inline std::vector<float> make_biases(std::int64_t queries, std::int64_t keys, float odd) {
  std::vector<float> biases(as_size(queries * keys));
  for (std::int64_t i = 0; i < queries * keys; ++i) {
    bool const is_hidden = i % 5 == 2 || i / keys == 3;
    biases[as_size(i)] =
        is_hidden ? -tessera::infinity : tessera::testing::gauss{}.value(5, static_cast<std::uint64_t>(i));
  }
  biases[as_size((queries - 1) * keys)] = odd;
  return biases;
}

/// How far log-sum-exps may be from the portable program's, which rounds scores elsewhere: a weight's code may be the
/// next one, and a row may have one weight that matters. Where a bias is so large that fp32 has no fractions, units of
/// the last place are apart as well.
inline constexpr double most_apart = 0.0607;  // log(17 / 16)

/// Whether log-sum-exps are as near as that to those expected.
inline bool are_near(std::vector<double> const& found, std::vector<double> const& expected) {
  bool near = found.size() == expected.size();
  for (std::size_t i = 0; near && i < expected.size(); ++i) {
    near = found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i])) ||
           std::abs(found[i] - expected[i]) < most_apart + 1e-6 * std::abs(expected[i]);
  }
  return near;
}

template <class Method, class Bias>
void check_against_cpu(attention_problem<tessera::bfloat16> const& p, Bias const& there, Bias const& here) {
  tessera::attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.queries, s.keys, s.channels, p.options.is_causal, p.options.window_left);
  tessera::cuda const exec;
  auto const found = run_on_device<Method, tessera::bfloat16>(exec, p, head_layout::tokens_first, true,
                                                              tessera::attention_functions<Bias>{there});
  auto const expected = run_attention_problem<Method, tessera::bfloat16>(tessera::cpu{}, p, here);
  CHECK(found.is_clean);
  std::vector<double> of_found;
  std::vector<double> of_expected;
  std::int64_t odd = 0;
  for (std::size_t i = 0; i < expected.result.size(); ++i) {
    if (std::isnan(expected.result[i]) || std::isnan(found.found.result[i])) {
      odd += std::isnan(expected.result[i]) != std::isnan(found.found.result[i]) ? 1 : 0;
    } else {
      of_found.push_back(found.found.result[i]);
      of_expected.push_back(expected.result[i]);
    }
  }
  CHECK(odd == 0);
  CHECK(error_of(of_found, of_expected).relative_l1 < 5e-3);
  CHECK(are_near(found.found.log_sum_exp, expected.log_sum_exp));
}

}  // namespace tessera_test
