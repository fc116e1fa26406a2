// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The results that compressed_linear must give, to the last bit, from plain weights: in the order of additions of its
/// header.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/precision.hpp>

namespace tessera_test {

/// The expected outputs[token][row]; inputs and weights are row-major. bias: empty for none.
template <class Output, class Input, class Weight>
std::vector<Output> linear_reference(std::vector<Input> const& inputs, std::vector<Weight> const& weights,
                                     std::vector<Weight> const& bias, std::int64_t tokens, std::int64_t rows,
                                     std::int64_t columns) {
  std::vector<Output> outputs(static_cast<std::size_t>(tokens * rows));
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t row = 0; row < rows; ++row) {
      float lane_sum[32]{};
      for (std::int64_t column = 0; column < columns; ++column) {
        float& sum = lane_sum[column % 32];
        sum = std::fma(tessera::load(inputs[static_cast<std::size_t>(token * columns + column)]),
                       tessera::load(weights[static_cast<std::size_t>(row * columns + column)]), sum);
      }
      for (int distance = 16; distance > 0; distance /= 2) {
        for (int lane = 0; lane < distance; ++lane) {
          lane_sum[lane] = lane_sum[lane] + lane_sum[lane + distance];
        }
      }
      float const total = bias.empty() ? lane_sum[0] : lane_sum[0] + tessera::load(bias[static_cast<std::size_t>(row)]);
      outputs[static_cast<std::size_t>(token * rows + row)] = tessera::store<Output>(total);
    }
  }
  return outputs;
}

}  // namespace tessera_test
