// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks of programs that multiply few rows with exact codes and scales of groups. Model: the model of such a program.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/tile/source/scaled_codes.hpp>

#include "program/gemm/products_of_codes.cuh"

namespace tessera_test {

/// The sums in double of codes times scales times inputs, and how far fp32 sums may be from them.
struct expected_sum {
  double value;
  double tolerance;
};
template <class Q, class Value>
expected_sum sum_of(codes_on_device<Q> const& made, Value const* inputs, std::int64_t row) {
  constexpr int in_element = codes_on_device<Q>::in_element;
  double value = 0;
  double magnitude = 0;
  for (std::int64_t column = 0; column < made.columns; ++column) {
    auto const stored = made.codes[static_cast<std::size_t>(row * made.stride + column / in_element)];
    int code = 0;
    if constexpr (in_element == 2) {
      code = column % 2 == 0 ? low(stored) : high(stored);
    } else {
      code = stored;
    }
    double const scale = made.params[static_cast<std::size_t>(row * made.groups + column / Q::group)].scale;
    double const product = code * scale * static_cast<double>(load(inputs[column]));
    value += product;
    magnitude += std::fabs(product);
  }
  return {value, magnitude * std::ldexp(1.0, -19)};
}

/// Multiplies by scaled codes, by the program of a model, and counts sums that are not as exact as codes that are not
/// rounded give.
template <class Model, class Q, class Value>
std::int64_t wrong_sums_of(std::int64_t tokens, std::int64_t rows, std::int64_t columns, std::int64_t gap,
                           std::vector<Value> const* given = nullptr) {
  cuda const exec;
  codes_on_device<Q> const made(rows, columns, gap);
  auto const rounded = made.source();
  using source_type = scaled_codes<Q, Value>;
  source_type const source{{}, rounded.codes, rounded.params};
  auto x = sampled<Value>(exec, tokens, columns, aligned<Value>(columns), 1);
  if (given != nullptr) {
    x.host = *given;
  }
  buffer<float> outputs(exec, tokens * rows);
  std::vector<float> found(static_cast<std::size_t>(tokens * rows));
  std::memset(found.data(), 0xff, found.size() * sizeof(float));
  exec.copy(x.host, x.device);
  exec.copy(found, outputs);
  matrix_view<float> const y(outputs.data(), {tokens, rows});
  source_linear_problem<Value, source_type, float, plain_sum> const call{x.on_device(), source, y, {}};
  CHECK(!Model::refuses(exec, call));
  Model::run(exec, call);
  exec.copy(outputs, found);
  exec.wait();
  std::int64_t wrong = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t row = 0; row < rows; ++row) {
      auto const expected = sum_of(made, &x.on_host()(token, 0), row);
      double const sum = found[static_cast<std::size_t>(token * rows + row)];
      bool const is_right =
          std::isnan(expected.value) ? std::isnan(sum) : std::fabs(sum - expected.value) <= expected.tolerance;
      wrong += is_right ? 0 : 1;
    }
  }
  return wrong;
}

/// Three rows of 256 inputs, of which two have a NaN.
inline std::vector<bfloat16> inputs_with_nans() {
  std::vector<bfloat16> inputs(3 * 256, store<bfloat16>(0.5F));
  inputs[7] = store<bfloat16>(std::numeric_limits<float>::quiet_NaN());
  inputs[2 * 256 + 200] = store<bfloat16>(std::numeric_limits<float>::quiet_NaN());
  return inputs;
}

}  // namespace tessera_test
