// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs the kernel on any executor and compares it with a product in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../support/text_table.hpp"
#include "int4_linear.hpp"

namespace tessera_examples {

/// A layer and its inputs, all of it on the host.
struct layer_data {
  std::string name;
  std::int64_t tokens;
  std::int64_t columns;
  std::int64_t depth;
  std::vector<bfloat16> inputs;   ///< tokens x depth
  std::vector<bfloat16> weights;  ///< columns x depth

  /// The same layer for fewer tokens.
  [[nodiscard]] layer_data first_tokens(std::int64_t count) const {
    layer_data fewer = *this;
    fewer.tokens = count;
    fewer.inputs.resize(static_cast<std::size_t>(count * depth));
    return fewer;
  }
};

/// The largest errors in units of their bounds; more than 1 is wrong.
struct layer_errors {
  double codes = 0;    ///< decoded weights, in units of the quantizer's max_error()
  double outputs = 0;  ///< errors of outputs, in units of output_bound()

  [[nodiscard]] bool are_within_bounds() const { return codes <= 1 && outputs <= 1; }  // false for NaN
  void include(layer_errors other) {
    codes = larger(codes, other.codes);
    outputs = larger(outputs, other.outputs);
  }
  /// The larger value; a NaN, once seen, stays.
  static double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }
};

/// The bound of the error of `sum`, in double, of products whose magnitudes add up to `magnitude`. It covers the
/// rounding of the products' sums in fp32, in the order of the hardware (tile/gemm_operand.hpp), of scaling each
/// group's sum, and of the result to bf16.
inline double output_bound(double sum, double magnitude, std::int64_t depth) {
  return std::ldexp(8.0 + static_cast<double>(depth) / 4, -24) * magnitude + std::ldexp(1.01, -8) * std::fabs(sum) +
         1e-30;
}

/// One row of the layer's codes, decoded.
class decoded_row {
 public:
  decoded_row(int4x2 const* codes, std::vector<symmetric_params> params, std::int64_t depth)
      : codes_(codes), params_(std::move(params)), weights_(static_cast<std::size_t>(depth)) {
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      int const code = k % 2 == 0 ? low(codes_[k / 2]) : high(codes_[k / 2]);
      weights_[k] = quantizer{}.decode(static_cast<std::int8_t>(code), params_of(k));
    }
  }

  /// The largest error of a decoded weight, in units of the quantizer's max_error().
  [[nodiscard]] double code_error(bfloat16 const* weights) const {
    double worst = 0;
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      double const moved = std::fabs(static_cast<double>(weights_[k]) - static_cast<double>(load(weights[k])));
      worst = layer_errors::larger(worst, moved / static_cast<double>(quantizer{}.max_error(params_of(k))));
    }
    return worst;
  }
  [[nodiscard]] double output_error(bfloat16 const* inputs, bfloat16 found) const {
    double sum = 0;
    double magnitude = 0;
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      double const product = static_cast<double>(weights_[k]) * static_cast<double>(load(inputs[k]));
      sum += product;
      magnitude += std::fabs(product);
    }
    double const off = std::fabs(static_cast<double>(load(found)) - sum);
    return off / output_bound(sum, magnitude, static_cast<std::int64_t>(weights_.size()));
  }

 private:
  [[nodiscard]] symmetric_params params_of(std::size_t k) const {
    return params_[k / static_cast<std::size_t>(quantizer::group)];
  }
  int4x2 const* codes_;
  std::vector<symmetric_params> params_;
  std::vector<float> weights_;
};

template <class T, class Executor>
std::vector<T> on_host(Executor const& exec, array_view<T const> list) {
  std::vector<T> copy(static_cast<std::size_t>(list.size()));
  exec.copy(list, copy);
  exec.wait();
  return copy;
}

/// The largest errors of every `every`-th column, for all tokens.
template <class Executor>
layer_errors errors_of(Executor const& exec, layer_data const& data, int4_layer const& layer,
                       std::vector<bfloat16> const& outputs, std::int64_t every = 1) {
  auto const codes = on_host<int4x2>(exec, {layer.codes().pairs.data, layer.codes().pairs.size()});
  auto const params = on_host<symmetric_params>(exec, {layer.scales().data, layer.scales().size()});
  layer_errors worst;
  for (std::int64_t column = 0; column < data.columns; column += every) {
    std::vector<symmetric_params> own;
    for (std::int64_t group = 0; group < layer.groups(); ++group) {
      own.push_back(params[static_cast<std::size_t>(group * data.columns + column)]);
    }
    decoded_row const row(codes.data() + column * data.depth / 2, std::move(own), data.depth);
    worst.include({row.code_error(data.weights.data() + column * data.depth), 0});
    for (std::int64_t token = 0; token < data.tokens; ++token) {
      bfloat16 const found = outputs[static_cast<std::size_t>(token * data.columns + column)];
      worst.include({0, row.output_error(data.inputs.data() + token * data.depth, found)});
    }
  }
  return worst;
}

template <class Executor>
layer_errors check_layer(Executor const& exec, layer_data const& data) {
  buffer<bfloat16> weights(exec, data.columns * data.depth);
  buffer<bfloat16> inputs(exec, data.tokens * data.depth);
  buffer<bfloat16> outputs(exec, data.tokens * data.columns);
  exec.copy(data.weights, weights);
  exec.copy(data.inputs, inputs);
  int4_layer const layer(exec, {weights.data(), {data.columns, data.depth}});
  buffer<float> sums(exec, layer.partial_sums(data.tokens));
  layer.forward(exec, {inputs.data(), {data.tokens, data.depth}}, sums, {outputs.data(), {data.tokens, data.columns}});
  return errors_of(exec, data, layer, on_host<bfloat16>(exec, {outputs.data(), outputs.size()}));
}

/// Checks every layer at several batch sizes and adds a row of the table for each. Returns whether all were right.
template <class Executor>
bool check_layers(Executor const& exec, std::string const& device, std::vector<layer_data> const& layers,
                  text_table& table) {
  bool right = true;
  for (layer_data const& whole : layers) {
    for (std::int64_t const tokens : {std::int64_t{1}, std::int64_t{16}, whole.tokens}) {
      layer_errors const errors = check_layer(exec, whole.first_tokens(tokens));
      right = right && errors.are_within_bounds();
      table.add({whole.name, device, std::to_string(tokens), std::to_string(whole.columns), std::to_string(whole.depth),
                 fixed(errors.codes, 3), fixed(errors.outputs, 3), errors.are_within_bounds() ? "ok" : "WRONG"});
    }
  }
  return right;
}

}  // namespace tessera_examples
