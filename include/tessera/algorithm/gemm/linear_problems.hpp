// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What `linear` hands to run() (exec/run.hpp): `linear_problem`, `source_linear_problem` and `paneled_linear_problem`,
/// and the portable programs of the first two. Executors with faster programs list these for such problems.
#pragma once

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/source/dense.hpp>
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
  /// Whether programs that take operands across the depth are compiled: for elements of 2 bytes, unless the map says
  /// that its operands lie along the depth (concepts/sum_map.hpp).
  static constexpr bool may_lie_across = sizeof(operand_type) == 2 && !requires { Map::operands_lie_along; };
  /// Whether programs are compiled for operands of which these lie across the depth: all, or where the map says which,
  /// those and the ones for operands along it.
  static constexpr bool may_lie(bool inputs_are_across, bool weights_are_across) {
    if constexpr (!may_lie_across) {
      return !inputs_are_across && !weights_are_across;
    } else if constexpr (requires { Map::may_lie(inputs_are_across, weights_are_across); }) {
      return Map::may_lie(inputs_are_across, weights_are_across) || (!inputs_are_across && !weights_are_across);
    } else {
      return true;
    }
  }

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

/// The same with memory for a panel of the weights.
template <class Operand, TileSource Weights, class Output, class Map>
struct paneled_linear_problem : source_linear_problem<Operand, Weights, Output, Map> {
  /// Memory for some rows of the weights, at least one, of all columns; null: weights are multiplied as they are made.
  matrix_view<typename gemm_operand<Operand>::value_type> panel;
};

}  // namespace v0
}  // namespace tessera
