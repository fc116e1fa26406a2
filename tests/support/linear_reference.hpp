// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The results that compressed_linear must give, to the last bit, from plain weights: in the order of additions of its
/// header. With values to multiply, and a count of what differs.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/testing/generators.hpp>

namespace tessera_test {

/// Normal values of this standard deviation.
template <class T>
std::vector<T> gaussian(std::int64_t count, std::uint64_t seed, double sigma) {
  std::vector<T> values(static_cast<std::size_t>(count));
  tessera::testing::fill(tessera::testing::gauss{.sigma = sigma}, seed, values.data(), values.size());
  return values;
}

/// How many elements have other bits than those of the second list; -1 if the lists have different lengths.
template <class T>
std::int64_t differing(std::vector<T> const& a, std::vector<T> const& b) {
  std::int64_t count = a.size() == b.size() ? 0 : -1;
  for (std::size_t i = 0; count >= 0 && i < a.size(); ++i) {
    count += tessera::to_bits(a[i]) != tessera::to_bits(b[i]) ? 1 : 0;
  }
  return count;
}

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
