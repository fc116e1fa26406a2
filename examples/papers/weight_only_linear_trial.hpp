// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs weight_only_linear and compares it with products in double of inputs and decoded weights.
#pragma once

#include "../support/paper_trial.hpp"
#include "weight_only_linear.hpp"

namespace tessera_examples {

struct weight_only_linear_trial {
  struct extents {
    std::int64_t tokens, columns, depth;
  };
  static constexpr char const* name = "weight_only_linear";
  static constexpr extents usual{17, 75, 642};
  static constexpr extents large[] = {{1, 28672, 8192}, {16, 28672, 8192}, {256, 28672, 8192}, {4096, 28672, 8192}};
  static constexpr double bound = 1e-2;  ///< results are rounded to bf16, and in some programs weights are

  template <class Executor>
  static paper_finding run(Executor const& exec, extents of) {
    auto const inputs = filled<bfloat16>(exec, testing::gauss{}, 1, of.tokens * of.depth);
    auto const weights =
        filled<bfloat16>(exec, testing::student_t{.freedom = 3, .scale = 0.02}, 2, of.columns * of.depth);
    auto outputs = poisoned<bfloat16>(exec, of.tokens * of.columns);
    weight_only_linear const layer(exec, {weights.data(), {of.columns, of.depth}});
    auto const plan = layer.plan_forward(exec, of.tokens);
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    paper_finding found{join(of.tokens, " tokens, ", of.columns, " x ", of.depth),
                        seconds_of(exec,
                                   [&] {
                                     layer.forward(exec, {inputs.data(), {of.tokens, of.depth}},
                                                   {outputs.data(), {of.tokens, of.columns}}, space);
                                   }),
                        0};
    found.bytes = static_cast<double>(of.columns * of.depth) * (1 / 2.0 + 1 / 32.0) +
                  static_cast<double>(of.tokens * (of.depth + of.columns)) * 2;
    found.flops = 2 * static_cast<double>(of.tokens) * static_cast<double>(of.columns * of.depth);
    auto const x = here(exec, inputs, 0, inputs.size()), y = here(exec, outputs, 0, outputs.size());
    buffer<float> decoded(exec, of.depth);
    largest_error error;
    for (std::int64_t column = 0; column < of.columns; column += divide_up(of.columns, std::int64_t{100})) {
      auto const codes = layer.weights();
      weight_only_linear::matrix::dequantize(exec, {}, {&codes.codes(column, 0), {1, codes.codes.extent(1)}},
                                             {&codes.params(column, 0), {1, codes.params.extent(1)}},
                                             matrix_view<float>{decoded.data(), {1, of.depth}});
      auto const w = here(exec, decoded, 0, of.depth);
      for (std::int64_t token = 0; token < of.tokens; token += divide_up(of.tokens, std::int64_t{100})) {
        double sum = 0;
        for (std::int64_t k = 0; k < of.depth; ++k) {
          sum += static_cast<double>(w[k]) * static_cast<double>(load(x[token * of.depth + k]));
        }
        error.add(static_cast<double>(load(y[token * of.columns + column])), sum);
      }
    }
    found.error = error.relative();
    return found;
  }
};

}  // namespace tessera_examples
