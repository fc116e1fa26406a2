// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs group_scaled_linear and compares it with products in double of what the codes stand for.
#pragma once

#include <numeric>

#include "../support/paper_trial.hpp"
#include "group_scaled_linear.hpp"

namespace tessera_examples {

struct group_scaled_linear_trial {
  struct extents {
    std::int64_t tokens, columns, depth;
  };
  static constexpr char const* name = "group_scaled_linear";
  static constexpr extents usual{17, 139, 300}, large[] = {{4096, 18432, 7168}};
  static constexpr double bound = 1e-2;  ///< results are rounded to bf16

  template <class Executor>
  static paper_finding run(Executor const& exec, extents of) {
    auto const inputs = filled<bfloat16>(exec, testing::student_t{}, 1, of.tokens * of.depth);
    auto const weights = filled<bfloat16>(exec, testing::gauss{.sigma = 0.02}, 2, of.columns * of.depth);
    auto outputs = poisoned<bfloat16>(exec, of.tokens * of.columns);
    group_scaled_linear layer(exec, {weights.data(), {of.columns, of.depth}}, of.tokens);
    paper_finding found{
        join(of.tokens, " tokens, ", of.columns, " x ", of.depth),
        seconds_of(
            exec,
            [&] {
              layer.forward(exec, {inputs.data(), {of.tokens, of.depth}}, {outputs.data(), {of.tokens, of.columns}});
            }),
        0};
    found.flops = 2 * static_cast<double>(of.tokens) * static_cast<double>(of.columns * of.depth);
    auto const y = here(exec, outputs, 0, outputs.size());
    scaled_operand<float8_groups> const x{layer.input_codes(of.tokens), layer.input_scales(of.tokens)};
    largest_error error;
    for (std::int64_t column = 0; column < of.columns; column += divide_up(of.columns, std::int64_t{50})) {
      auto const w = decoded(exec, layer.weights(), column);
      for (std::int64_t token = 0; token < of.tokens; token += divide_up(of.tokens, std::int64_t{50})) {
        auto const row = decoded(exec, x, token);
        error.add(double{load(y[token * of.columns + column])},
                  std::inner_product(row.begin(), row.end(), w.begin(), 0.0));
      }
    }
    found.error = error.relative();
    return found;
  }

 private:
  /// What the codes of a row stand for.
  template <class Executor, class Operand>
  static std::vector<double> decoded(Executor const& exec, Operand const& from, std::int64_t row) {
    std::vector<float8_e4m3> codes(static_cast<std::size_t>(from.columns()));
    std::vector<scaled_float_params> scales(static_cast<std::size_t>(from.params.extent(1)));
    exec.copy(from.codes[row], codes);
    for (std::int64_t g = 0; g < from.params.extent(1); ++g) {
      exec.copy(array_view<scaled_float_params const>(&from.params(row / Operand::rows_of_scale, g), 1),
                array_view<scaled_float_params>(&scales[g], 1));
    }
    exec.wait();
    std::vector<double> values;
    for (std::size_t k = 0; k < codes.size(); ++k) {
      values.push_back(double{load(codes[k])} * double{scales[k / 128].scale});
    }
    return values;
  }
};

}  // namespace tessera_examples
