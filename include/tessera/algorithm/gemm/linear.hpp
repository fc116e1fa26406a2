// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A linear layer: outputs = inputs * weights^T + bias, with sums in fp32 (int32 for 8-bit integers).
///
///     using layer = tessera::linear<tessera::bfloat16>;     // or float, tf32, float16, float8_e4m3, std::int8_t, ...
///     layer::forward(exec, inputs, weights, outputs);       // tokens x depth, columns x depth, tokens x columns
///     layer::forward(exec, inputs, weights, bias, outputs);
///     layer::forward(exec, inputs, weights, scaled_sum{0.01F}, outputs);    // any map of concepts/sum_map.hpp
///
/// Weights may come from any TileSource of the operand's type, such as codes that are decoded on the way
/// (tile/source/dequantized.hpp), and are then never in memory as a matrix:
///
///     dequantized<symmetric_quantizer<8, 64>, bfloat16> const weights{{}, codes, scales};
///     layer::forward(exec, inputs, weights, outputs);
///
/// Extents and strides are any, including extents of 0 and unaligned rows. Outputs have any storage type, or
/// std::int32_t for integer operands. Sums are added up in an order that depends on the device alone, so that results
/// repeat bit for bit; between devices they differ by rounding (tile/gemm_operand.hpp says how much). A call allocates
/// nothing. linear.cuh says what a tessera::cuda executor runs.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/sum_map.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/map/add_bias.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// A linear layer as run() takes it: operands whose shapes fit together.
template <class Operand, class Output, class Map>
struct linear_problem {
  /// How elements are multiplied: tile/gemm_operand.hpp.
  using operand = Operand;
  /// The type that inputs and weights are stored as.
  using operand_type = typename gemm_operand<Operand>::value_type;
  static constexpr char const* function = "linear.forward";

  matrix_view<operand_type const> inputs;   ///< tokens x depth
  matrix_view<operand_type const> weights;  ///< columns x depth
  matrix_view<Output> outputs;              ///< tokens x columns, not empty
  Map map;                                  ///< the map that sums go through before they are stored: a SumMap
};

/// Enqueues the portable program, for any executor and any strides; run() (exec/run.hpp) may have a faster one.
template <Executor Exec, class Operand, class Output, class Map>
void run_portably(Exec const& exec, linear_problem<Operand, Output, Map> const& problem) {
  using source = dense<typename gemm_operand<Operand>::value_type>;
  using program = gemm_tiles<Operand, source, source, store_sums<Output, Map>>;
  program const whole{source{problem.inputs}, source{problem.weights}, {problem.outputs, problem.map}};
  exec.run(whole, whole.tiles());
}

/// A linear layer whose weights come from a TileSource, as run() takes it.
template <class Operand, TileSource Weights, class Output, class Map>
struct source_linear_problem {
  /// How elements are multiplied: tile/gemm_operand.hpp.
  using operand = Operand;
  /// The type that inputs are stored as and weights are decoded to.
  using operand_type = typename gemm_operand<Operand>::value_type;
  static constexpr char const* function = "linear.forward";

  matrix_view<operand_type const> inputs;  ///< tokens x depth
  Weights weights;                         ///< columns x depth
  matrix_view<Output> outputs;             ///< tokens x columns, not empty
  Map map;                                 ///< the map that sums go through before they are stored: a SumMap
};

/// Enqueues the portable program, for any executor and any strides.
template <Executor Exec, class Operand, class Weights, class Output, class Map>
void run_portably(Exec const& exec, source_linear_problem<Operand, Weights, Output, Map> const& problem) {
  using source = dense<typename gemm_operand<Operand>::value_type>;
  using program = gemm_tiles<Operand, source, Weights, store_sums<Output, Map>>;
  program const whole{source{problem.inputs}, problem.weights, {problem.outputs, problem.map}};
  exec.run(whole, whole.tiles());
}

template <class Operand>
struct linear {
  using value_type = typename gemm_operand<Operand>::value_type;
  /// Views of inputs and weights, with elements of type Operand, or float for tf32.
  using operands = matrix_view<value_type const>;

  /// Enqueues outputs = inputs weights^T. Throws shape_error for extents that do not fit together. The call neither
  /// waits nor allocates.
  template <Executor Exec, class Output>
  static void forward(Exec const& exec, operands inputs, operands weights, view<Output, 2> outputs) {
    forward(exec, inputs, weights, plain_sum{}, outputs);
  }

  /// Enqueues outputs = inputs weights^T + bias. `bias` has a value for each column.
  template <Executor Exec, class Bias, class Output>
  static void forward(Exec const& exec, operands inputs, operands weights, view<Bias, 1> bias,
                      view<Output, 2> outputs) {
    check<shape_error>(bias.size() == outputs.extent(1), where, ": the bias has ", bias.size(),
                       " values but the outputs have ", outputs.extent(1), " columns");
    check_memory(where, "biases", bias);
    forward(exec, inputs, weights, add_bias<std::remove_const_t<Bias>>{bias}, outputs);
  }

  /// Enqueues outputs = map(inputs weights^T). `map` is called once for each sum before it is stored.
  template <Executor Exec, SumMap Map, class Output>
  static void forward(Exec const& exec, operands inputs, operands weights, Map map, view<Output, 2> outputs) {
    check_shapes(inputs, weights, outputs);
    if (!outputs.is_empty()) {
      run(exec, linear_problem<Operand, Output, Map>{inputs, weights, outputs, map});
    }
  }

  /// Enqueues outputs = inputs weights^T, where the weights come from a source: columns x depth.
  template <Executor Exec, TileSource Weights, class Output>
  requires(std::is_same_v<typename Weights::value_type, value_type>) static void forward(Exec const& exec,
                                                                                         operands inputs,
                                                                                         Weights const& weights,
                                                                                         view<Output, 2> outputs) {
    forward(exec, inputs, weights, plain_sum{}, outputs);
  }

  /// Enqueues outputs = map(inputs weights^T), where the weights come from a source: columns x depth.
  template <Executor Exec, TileSource Weights, SumMap Map, class Output>
  requires(std::is_same_v<typename Weights::value_type, value_type>) static void forward(
      Exec const& exec, operands inputs, Weights const& weights, Map map, view<Output, 2> outputs) {
    check_extents(inputs, weights.rows(), weights.columns(), outputs);
    if (!outputs.is_empty()) {
      run(exec, source_linear_problem<Operand, Weights, Output, Map>{inputs, weights, outputs, map});
    }
  }

 private:
  static constexpr char const* where = "linear.forward";

  template <class Output>
  static void check_shapes(operands inputs, operands weights, view<Output, 2> outputs) {
    check_extents(inputs, weights.extent(0), weights.extent(1), outputs);
    check_memory(where, "weights", weights);
  }

  template <class Output>
  static void check_extents(operands inputs, std::int64_t weight_rows, std::int64_t weight_columns,
                            view<Output, 2> outputs) {
    check<shape_error>(inputs.extent(0) == outputs.extent(0), where, ": the inputs have ", inputs.extent(0),
                       " rows but the outputs have ", outputs.extent(0));
    check<shape_error>(weight_rows == outputs.extent(1), where, ": the weights have ", weight_rows,
                       " rows but the outputs have ", outputs.extent(1), " columns");
    check<shape_error>(inputs.extent(1) == weight_columns, where, ": the inputs have ", inputs.extent(1),
                       " columns but the weights have ", weight_columns);
    check<shape_error>(outputs.extent(0) >= 0 && outputs.extent(1) >= 0 && inputs.extent(1) >= 0, where,
                       ": the extents are ", outputs.extent(0), ", ", outputs.extent(1), " and ", inputs.extent(1),
                       " but must not be negative");
    check_memory(where, "inputs", inputs);
    check_memory(where, "outputs", outputs);
    check_apart(where, "outputs", outputs);
  }
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/gemm/linear.cuh>
#endif
