// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A user's own quantizer: 4-bit floats that share a power of two, which tessera does not have. It is checked against
/// the laws of its concept, and then used like the library's own.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/quantizer.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/dequantized.hpp>

#include "../support/distance.hpp"
#include "../support/failure.hpp"
#include "../support/input_file.hpp"
#include "../support/run_example.hpp"
#include "../support/safetensors.hpp"
#include "../support/tensor_elements.hpp"
#include "../support/text_table.hpp"
#include "mxfp4_quantizer.hpp"

namespace tessera_examples {
namespace {

using tessera::bfloat16;
using tessera::matrix_view;

constexpr std::int64_t rows = 384;
constexpr std::int64_t columns = 384;
constexpr std::int64_t tokens = 32;

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Checks the laws on values for which quantizers fail: of all magnitudes, halfway between codes, infinite.
void check_laws_of_ours() {
  std::vector<float> values{0.0F, 1.0F, -1.0F, 0.25F, 0.75F, 2.5F, 5.0F, 6.0F, -7.0F, 1e-30F, 3e38F, -3e38F, 1e-45F};
  for (int i = 0; i < 64; ++i) {
    values.push_back(tessera::testing::gauss{}.value(1, static_cast<std::uint64_t>(i)));
  }
  values.push_back(std::numeric_limits<float>::infinity());
  auto const report = tessera::testing::check_laws<mxfp4_quantizer>(values);
  require(exit_code::unsound, report.is_empty(), "mxfp4_quantizer: ", report.text());
}

/// Weights as codes, with parameters for each group of neighbours in a row.
template <class Quantizer>
struct coded_weights {
  static constexpr std::int64_t groups = columns / Quantizer::group;
  std::vector<typename Quantizer::code_type> codes;
  std::vector<typename Quantizer::params_type> params;

  explicit coded_weights(std::vector<bfloat16> const& weights) {
    Quantizer const quantizer;
    for (std::size_t first = 0; first < weights.size(); first += Quantizer::group) {
      auto range = quantizer.range().identity();
      for (std::size_t i = first; i < first + Quantizer::group; ++i) {
        quantizer.range().push(range, tessera::load(weights[i]));
      }
      params.push_back(quantizer.fit(range));
      for (std::size_t i = first; i < first + Quantizer::group; ++i) {
        codes.push_back(quantizer.encode(tessera::load(weights[i]), params.back()));
      }
    }
  }
  /// Bits of a weight: a code of 4 bits and its part of the parameters.
  [[nodiscard]] static double bits() {
    return 4 + 8.0 * sizeof(typename Quantizer::params_type) / static_cast<double>(Quantizer::group);
  }
  /// The TileSource that a program multiplies with, as if it were a matrix.
  [[nodiscard]] auto source() const {
    return tessera::dequantized<Quantizer, bfloat16>{
        {},
        matrix_view<typename Quantizer::code_type const>(codes.data(), {rows, columns}),
        matrix_view<typename Quantizer::params_type const>(params.data(), {rows, groups})};
  }
};

/// The product inputs * weights^T, by the library's program for products of tiles.
template <class Weights>
std::vector<float> product(std::vector<bfloat16> const& inputs, Weights const& weights) {
  std::vector<float> outputs(index(tokens * rows));
  using epilogue = tessera::store_sums<float, tessera::plain_sum>;
  tessera::gemm_tiles<bfloat16, tessera::dense<bfloat16>, Weights, epilogue> const program{
      {matrix_view<bfloat16 const>(inputs.data(), {tokens, columns})},
      weights,
      {matrix_view<float>(outputs.data(), {tokens, rows}), {}}};
  tessera::cpu const exec;
  exec.run(program, program.tiles());
  exec.wait();
  return outputs;
}

double relative_error(std::vector<float> const& found, std::vector<float> const& expected) {
  distance apart;
  for (std::size_t i = 0; i < found.size(); ++i) {
    apart.add(static_cast<double>(found[i]), static_cast<double>(expected[i]));
  }
  return apart.relative();
}

void compare() {
  check_laws_of_ours();
  std::string const path = std::string(EXAMPLE_DATA) + "/minilm_bf16.safetensors";
  input_file const file(path);
  safetensors_reader const model(file, path);
  auto const weights = elements_of<bfloat16>(model, path, "encoder.layer.0.attention.self.query.weight", "BF16");
  require(exit_code::unsound, std::ssize(weights) == rows * columns, path, ": the layer has ", weights.size(),
          " weights but ", rows * columns, " are expected");
  std::vector<bfloat16> inputs(index(tokens * columns));
  tessera::testing::fill(tessera::testing::gauss{}, 2, inputs.data(), inputs.size());
  auto const exact =
      product(inputs, tessera::dense<bfloat16>{matrix_view<bfloat16 const>(weights.data(), {rows, columns})});

  text_table table({"weights", "bits, packed", "relative error of a layer's outputs"});
  auto const add_row = [&](char const* name, auto const& coded, double limit) {
    double const error = relative_error(product(inputs, coded.source()), exact);
    table.add({name, fixed(coded.bits(), 2), fixed(100 * error, 2) + " %"});
    require(exit_code::unsound, error < limit, name, ": the relative error is ", error, " but must be below ", limit);
  };
  add_row("MXFP4: 4-bit floats, 32 share a power of two", coded_weights<mxfp4_quantizer>(weights), 0.15);
  add_row("symmetric INT4, 32 share a float", coded_weights<tessera::symmetric_quantizer<4, 32>>(weights), 0.15);
  add_row("symmetric INT4, 128 share a float", coded_weights<tessera::symmetric_quantizer<4, 128>>(weights), 0.2);
  table.print(stdout);
}

}  // namespace
}  // namespace tessera_examples

int main() {
  return tessera_examples::run_example("custom_quantizer", tessera_examples::compare);
}
