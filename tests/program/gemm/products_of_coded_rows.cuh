// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks of programs that multiply few rows with the weights of a coded_matrix. Model: the model of such a program.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/map/plain_sum.hpp>
#include <tessera/testing/broken_weight_streams.hpp>
#include <tessera/testing/generators.hpp>

#include "algorithm/weights/coded_samples.hpp"
#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/cuda.hpp"

namespace tessera_test {

using namespace tessera;

/// A layer: weights, and what they are multiplied by.
struct coded_layer {
  std::int64_t tokens;
  std::int64_t rows;
  std::int64_t columns;
  std::vector<bfloat16> weights;
  std::vector<bfloat16> inputs;

  coded_layer(std::int64_t token_count, std::int64_t row_count, std::int64_t column_count)
      : tokens(token_count), rows(row_count), columns(column_count) {
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      weights.push_back(testing::sample<bfloat16>(testing::gauss{.sigma = 0.02}, 5, static_cast<std::uint64_t>(i)));
    }
    for (std::int64_t i = 0; i < tokens * columns; ++i) {
      inputs.push_back(testing::sample<bfloat16>(testing::gauss{}, 6, static_cast<std::uint64_t>(i)));
    }
  }
  [[nodiscard]] std::vector<std::byte> stream(weight_stream_options options) const {
    auto const made = fixed_codec::encode(cpu{}, weights, options);
    return {made.begin(), made.end()};
  }
};

/// Multiplies by a program; `stream` is what the weights are read from.
template <class Model>
std::vector<float> multiply(coded_layer const& l, std::vector<std::byte> const& stream, weight_stream_options options) {
  tessera::cuda const exec;
  opened_stream<tessera::cuda> const opened(exec, fixed_codec::spec(l.rows * l.columns, options), stream, l.rows,
                                            l.columns);
  buffer<bfloat16> inputs(exec, l.tokens * l.columns);
  buffer<float> outputs(exec, l.tokens * l.rows);
  std::vector<float> result(static_cast<std::size_t>(l.tokens * l.rows), -12345.0F);
  exec.copy(l.inputs, inputs);
  exec.copy(result, outputs);
  matrix_view<bfloat16 const> const a(inputs.data(), {l.tokens, l.columns});
  matrix_view<float> const y(outputs.data(), {l.tokens, l.rows});
  source_linear_problem<bfloat16, coded_weights, float, plain_sum> const call{a, opened.source(), y, {}};
  CHECK(!Model::refuses(exec, call));
  Model::run(exec, call);
  exec.copy(outputs, result);
  try {
    exec.wait();
  } catch (corrupt_data const&) {  // what was opened is multiplied all the same
  }
  return result;
}

/// Counts results that are neither the product in double nor as close to it as sums in fp32 can be. Where products or
/// their sum leave the range of fp32, what comes of it depends on the order of additions.
inline std::int64_t wrong(coded_layer const& l, std::vector<float> const& found) {
  std::int64_t count = 0;
  for (std::int64_t token = 0; token < l.tokens; ++token) {
    for (std::int64_t row = 0; row < l.rows; ++row) {
      double sum = 0;
      double size = 0;
      for (std::int64_t i = 0; i < l.columns; ++i) {
        double const product = double{load(l.weights[static_cast<std::size_t>(row * l.columns + i)])} *
                               load(l.inputs[static_cast<std::size_t>(token * l.columns + i)]);
        sum += product;
        size += std::abs(product);
      }
      float const result = found[static_cast<std::size_t>(token * l.rows + row)];
      bool const is_right = std::isnan(sum)   ? std::isnan(result)
                            : std::isinf(sum) ? double{result} == sum
                                              : size > 1e38 || std::abs(result - sum) <= 1e-5 * size + 1e-36;
      count += is_right ? 0 : 1;
    }
  }
  return count;
}

template <class Model>
std::int64_t wrong_products(coded_layer const& l, weight_stream_options options = {.block = 1024}) {
  CAPTURE(l.tokens, l.rows, l.columns);
  return wrong(l, multiply<Model>(l, l.stream(options), options));
}

/// All extents that the program tells apart.
template <class Model>
void check_extents() {
  for (std::int64_t const tokens : {1, 2, 7, 8, 9, 15, 16}) {
    CHECK(wrong_products<Model>(coded_layer(tokens, 70, 384)) == 0);
  }
  for (std::int64_t const rows : {32, 33, 63, 64, 65, 200}) {
    CHECK(wrong_products<Model>(coded_layer(3, rows, 640)) == 0);
    CHECK(wrong_products<Model>(coded_layer(13, rows, 128)) == 0);
  }
  for (std::int64_t const columns : {128, 256, 512, 896, 1024, 1152, 2048, 3200, 8192}) {
    CHECK(wrong_products<Model>(coded_layer(5, 40, columns)) == 0);
    CHECK(wrong_products<Model>(coded_layer(16, 40, columns), {.block = 8192}) == 0);
  }
}

/// More thread blocks than multiprocessors: other policies.
template <class Model>
void check_many_rows() {
  CHECK(wrong_products<Model>(coded_layer(2, 5000, 256)) == 0);
  CHECK(wrong_products<Model>(coded_layer(16, 5010, 256)) == 0);
}

/// Weights of every kind.
template <class Model>
void check_kinds() {
  for (weight_kind const kind : weight_kinds) {
    for (std::int64_t const tokens : {4, 16}) {
      CAPTURE(static_cast<int>(kind), tokens);
      coded_layer l(tokens, 48, 1280);
      for (std::size_t i = 0; i < l.weights.size(); ++i) {
        l.weights[i] = weight_of<bfloat16>(kind, 3, static_cast<std::int64_t>(i));
      }
      CHECK(wrong_products<Model>(l) == 0);
    }
  }
}

/// Rows of tiny weights and of zeros beside others keep their exactness.
template <class Model>
void check_tiny_weights() {
  coded_layer l(11, 64, 1024);
  for (std::int64_t i = 0; i < l.rows * l.columns; ++i) {
    auto& weight = l.weights[static_cast<std::size_t>(i)];
    if (i / l.columns % 4 == 1) {
      weight = tessera::store<bfloat16>(load(weight) * 1e-30F);
    } else if (i / l.columns % 4 == 2) {
      weight = {};
    }
  }
  CHECK(wrong_products<Model>(l) == 0);
  CHECK(wrong_products<Model>(l, {.block = 8192}) == 0);
}

/// Infinite and NaN inputs make the same of coded weights as of others.
template <class Model>
void check_special_inputs() {
  coded_layer l(16, 96, 1024);
  l.weights = weights_with_escapes(l.rows * l.columns, 4);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (std::int64_t token = 0; token < l.tokens; token += 2) {
    auto& input = l.inputs[static_cast<std::size_t>(token * l.columns + token * 37 % l.columns)];
    input = tessera::store<bfloat16>(token % 6 == 0 ? infinity : token % 6 == 2 ? -infinity : std::nanf(""));
  }
  // A column of each kind of weight where an input is infinite: escapes, zeros, and weights that have codes.
  std::int64_t escapes = 0;
  for (std::int64_t row = 0; row < l.rows; ++row) {
    float const weight = load(l.weights[static_cast<std::size_t>(row * l.columns)]);
    l.weights[static_cast<std::size_t>(row * l.columns)] = tessera::store<bfloat16>(row % 3 == 0   ? weight * 0x1p-40F
                                                                                    : row % 3 == 1 ? 0.0F
                                                                                                   : weight);
    escapes += row % 3 == 0 && weight != 0.0F ? 1 : 0;
  }
  CHECK(escapes > 20);
  CHECK(wrong_products<Model>(l) == 0);
}

/// A broken stream makes what decoding makes of it.
template <class Model>
void check_broken_streams() {
  weight_stream_options const options{.block = 1024};
  coded_layer l(6, 32, 256);
  l.weights = weights_with_escapes(l.rows * l.columns, 9);
  auto const spec = fixed_codec::spec(l.rows * l.columns, options);
  auto const sound = l.stream(options);
  int changed = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    auto broken = sound;
    testing::break_weight_stream(broken, seed);
    if (static_cast<std::int64_t>(broken.size()) < spec.smallest_bytes()) {
      continue;
    }
    CAPTURE(seed);
    coded_layer found = l;
    found.weights =
        opened_stream<cpu>(cpu{.threads = 1}, spec, broken, l.rows, l.columns).copied<tile_of_chunks>().values;
    CHECK(wrong(found, multiply<Model>(found, broken, options)) == 0);
    changed += differing(found.weights, l.weights) != 0 ? 1 : 0;
  }
  CHECK(changed > 50);
}

}  // namespace tessera_test
