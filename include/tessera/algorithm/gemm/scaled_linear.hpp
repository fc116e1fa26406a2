// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A linear layer of 8-bit codes with scales for groups of columns on both sides: outputs = inputs * weights^T, where
/// an element is a code times the scale of its row, or of its row's block, and its group of columns.
///
///     using quantizer = scaled_float_quantizer<float8_e4m3, 128>;          // or symmetric_quantizer<8, 128>
///     scaled_operand<quantizer> const inputs{codes, scales};               // tokens x depth; a scale for 1 x 128
///     scaled_operand<quantizer, 128> const weights{w_codes, w_scales};     // columns x depth; a scale for 128 x 128
///     scaled_linear::forward(exec, inputs, weights, outputs);              // tokens x columns
///
/// Inputs and weights are ScaledSources (tile/source/scaled_source.hpp) of the same elements; quantized_matrix makes
/// codes and scales. Sums of products of codes are added up over each group, exactly for integers, and as
/// tile/gemm_operand.hpp says for floats; these, times both scales, are added up in fp32, in the order of the groups.
/// So the error is a few 2^-24 of the sum of the products' magnitudes; on sm_90 with 8-bit floats, whose tensor cores
/// keep about 13 bits, a few 2^-13 of it, however long the depth is.
///
/// Extents and strides are any. Outputs have any storage type of floats. Results repeat bit for bit. A call allocates
/// nothing and does not wait. scaled_linear.cuh says what a tessera::cuda executor runs.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/sum_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/gemm_scaled_tiles.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/tile/source/scaled_source.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/check_parts.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// A linear layer of scaled codes as run() takes it: operands whose shapes fit together.
template <ScaledSource Inputs, ScaledSource Weights, class Output, class Map>
struct scaled_linear_problem {
  static constexpr char const* function = "scaled_linear.forward";

  Inputs inputs;                ///< tokens x depth
  Weights weights;              ///< columns x depth
  matrix_view<Output> outputs;  ///< tokens x columns, not empty
  Map map;                      ///< the map that sums go through before they are stored: a SumMap
};

/// Enqueues the portable program, for any executor and any strides; run() (exec/run.hpp) may have a faster one.
template <Executor Exec, class Inputs, class Weights, class Output, class Map>
void run_portably(Exec const& exec, scaled_linear_problem<Inputs, Weights, Output, Map> const& problem) {
  using program = gemm_scaled_tiles<Inputs, Weights, store_sums<Output, Map>>;
  program const whole{problem.inputs, problem.weights, {problem.outputs, problem.map}};
  exec.run(whole, whole.tiles());
}

struct scaled_linear {
  /// Enqueues outputs = inputs weights^T. Throws shape_error for extents that do not fit together. The call neither
  /// waits nor allocates.
  template <Executor Exec, ScaledSource Inputs, ScaledSource Weights, class Output>
  static void forward(Exec const& exec, Inputs const& inputs, Weights const& weights, view<Output, 2> outputs) {
    forward(exec, inputs, weights, plain_sum{}, outputs);
  }

  /// Enqueues outputs = map(inputs weights^T). `map` is called once for each sum before it is stored.
  template <Executor Exec, ScaledSource Inputs, ScaledSource Weights, SumMap Map, class Output>
  static void forward(Exec const& exec, Inputs const& inputs, Weights const& weights, Map map,
                      view<Output, 2> outputs) {
    static_assert(std::is_same_v<typename Inputs::value_type, typename Weights::value_type>,
                  "tessera: inputs and weights of scaled_linear have codes of one type");
    check<shape_error>(inputs.rows() == outputs.extent(0), where, ": the inputs have ", inputs.rows(),
                       " rows but the outputs have ", outputs.extent(0));
    check<shape_error>(weights.rows() == outputs.extent(1), where, ": the weights have ", weights.rows(),
                       " rows but the outputs have ", outputs.extent(1), " columns");
    check<shape_error>(inputs.columns() == weights.columns(), where, ": the inputs have ", inputs.columns(),
                       " columns but the weights have ", weights.columns());
    check_source(where, "inputs", inputs);
    check_source(where, "weights", weights);
    check_map(where, map, outputs.extent(0), outputs.extent(1));
    check_memory(where, "outputs", outputs);
    check_apart(where, "outputs", outputs);
    check_reach(exec, where, "outputs", outputs);
    check_reach_of(exec, where, inputs);
    check_reach_of(exec, where, weights);
    check_reach_of(exec, where, map);
    if (!outputs.is_empty()) {
      run(exec, scaled_linear_problem<Inputs, Weights, Output, Map>{inputs, weights, outputs, map});
    }
  }

 private:
  static constexpr char const* where = "scaled_linear.forward";
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/gemm/scaled_linear.cuh>
#endif
