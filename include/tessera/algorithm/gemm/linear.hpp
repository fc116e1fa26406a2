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
/// A source's weights are made again for every 256 tokens or so. With a workspace they are made once where tokens are
/// many: some rows of them, a panel, are written to memory and multiplied, then the next ones. Results are the same up
/// to the order of sums.
///
///     workspace_plan const plan = layer::plan_forward(exec, inputs.extent(0), weights);   // 0 bytes for few tokens
///     buffer<std::byte> memory(exec, plan.bytes());
///     layer::forward(exec, inputs, weights, outputs, workspace(plan, memory));
///
/// Either operand of 16 bits may be the transpose of what lies in memory, as those of gradients are:
///
///     layer::forward(exec, gradient, weights.transposed(), of_inputs);                  // dY W: tokens x depth
///     layer::forward(exec, gradient.transposed(), inputs.transposed(), of_weights);     // dY^T X: columns x depth
///
/// Extents and strides are any, including extents of 0 and unaligned rows. Outputs have any storage type, or
/// std::int32_t for integer operands; in braces without a type they have that of the operands. Sums are added up in an
/// order that depends on the device alone, so that results repeat bit for bit; between devices they differ by rounding
/// (tile/gemm_operand.hpp says how much). A call allocates nothing. linear.cuh says what a tessera::cuda executor runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/gemm/linear_problems.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/refused_call.hpp>
#include <tessera/concepts/sum_map.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/status.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/add_bias.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/check_parts.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// How many rows of a source's weights an executor's programs write to memory at a time; 0: none. Executors with
/// programs that do it specialise this.
template <Executor Exec, class Operand>
struct rows_of_panels {
  /// The number of rows, at most `most`, for a product of `tokens` rows and `columns` columns.
  std::int64_t operator()(Exec const& /*exec*/, std::int64_t /*tokens*/, std::int64_t /*columns*/,
                          std::int64_t /*most*/) const {
    return 0;
  }
};

/// Options of products with weights from a source.
struct linear_options {
  /// The most bytes of plan_forward()'s workspace, not negative. The larger panels are, the fewer times do the last
  /// tiles of one wait for the first of the next. With less than 256 rows take there is no panel.
  std::int64_t workspace_budget = std::int64_t{128} << 20;
};

namespace detail {

template <class T>
inline constexpr bool is_matrix = false;
template <class T>
inline constexpr bool is_matrix<view<T, 2>> = true;
template <class T>
inline constexpr bool is_list = false;
template <class T>
inline constexpr bool is_list<view<T, 1>> = true;

/// An executor on which nothing runs: the overload that refuses calls asks the others with it whether they take them.
struct asking_executor {
  struct resource {
    void* allocate(std::size_t bytes, std::size_t alignment, void* stream) const;
  };
  void* stream;
  template <class P>
  void run(P const& program, std::int64_t count) const;
  void wait() const;
  [[nodiscard]] resource memory() const;
  [[nodiscard]] status_word* status() const;
};

/// Whether Layer::forward takes such arguments behind an executor.
template <class Layer, class... Given>
inline constexpr bool takes_call = requires(asking_executor const& exec, Given const&... given) {
  Layer::forward(exec, given...);
};

/// Says why what stands before outputs is no map of sums, if something does.
template <class First, class... Rest>
constexpr void explain_map() {
  if constexpr (sizeof...(Rest) > 0 && !is_matrix<First> && !is_list<First>) {
    static_assert(SumMap<First>);
  }
}

}  // namespace detail

template <class Operand>
struct linear {
  using value_type = typename gemm_operand<Operand>::value_type;
  /// Views of inputs and weights, with elements of type Operand, or float for tf32.
  using operands = matrix_view<value_type const>;

  /// Enqueues outputs = inputs weights^T. Throws shape_error for extents that do not fit together. The call neither
  /// waits nor allocates.
  template <Executor Exec, class Output = value_type>
  static void forward(Exec const& exec, operands inputs, operands weights, view<Output, 2> outputs) {
    forward(exec, inputs, weights, plain_sum{}, outputs);
  }

  /// Enqueues outputs = inputs weights^T + bias. `bias` has a value for each column.
  template <Executor Exec, class Bias, class Output = value_type>
  static void forward(Exec const& exec, operands inputs, operands weights, view<Bias, 1> bias,
                      view<Output, 2> outputs) {
    forward(exec, inputs, weights, add_bias<std::remove_const_t<Bias>>{bias}, outputs);
  }

  /// Enqueues outputs = map(inputs weights^T). `map` is called once for each sum before it is stored.
  template <Executor Exec, SumMap Map, class Output = value_type>
  static void forward(Exec const& exec, operands inputs, operands weights, Map map, view<Output, 2> outputs) {
    check_shapes(inputs, weights, outputs);
    check_map(where, map, outputs.extent(0), outputs.extent(1));
    check_reach(exec, where, "inputs", inputs, "weights", weights, "outputs", outputs);
    check_reach_of(exec, where, map);
    if (!outputs.is_empty()) {
      run(exec, linear_problem<Operand, Output, Map>{inputs, weights, outputs, map});
    }
  }

  /// Enqueues outputs = inputs weights^T, where the weights come from a source: columns x depth.
  template <Executor Exec, TileSource Weights, class Output = value_type>
  requires(std::is_same_v<typename Weights::value_type, value_type>) static void forward(Exec const& exec,
                                                                                         operands inputs,
                                                                                         Weights const& weights,
                                                                                         view<Output, 2> outputs) {
    forward(exec, inputs, weights, plain_sum{}, outputs);
  }

  /// Enqueues outputs = map(inputs weights^T), where the weights come from a source: columns x depth.
  template <Executor Exec, TileSource Weights, SumMap Map, class Output = value_type>
  requires(std::is_same_v<typename Weights::value_type, value_type>) static void forward(
      Exec const& exec, operands inputs, Weights const& weights, Map map, view<Output, 2> outputs) {
    check_extents(inputs, weights.rows(), weights.columns(), outputs);
    check_source(where, "weights", weights);
    check_map(where, map, outputs.extent(0), outputs.extent(1));
    check_places(exec, inputs, weights, map, outputs);
    if (!outputs.is_empty()) {
      run(exec, source_linear_problem<Operand, Weights, Output, Map>{inputs, weights, outputs, map});
    }
  }

  /// The workspace in which products of `tokens` tokens have panels of the weights: 0 bytes where the executor's
  /// programs multiply weights as they are made.
  template <Executor Exec, TileSource Weights>
  requires(std::is_same_v<typename Weights::value_type, value_type>) static workspace_plan
      plan_forward(Exec const& exec, std::int64_t tokens, Weights const& weights, linear_options const& options = {}) {
    return panels(exec, {tokens, weights.rows(), weights.columns()}, options, workspace_plan::record::entries).plan;
  }

  /// Enqueues outputs = inputs weights^T, where panels of the weights have a workspace.
  template <Executor Exec, TileSource Weights, class Output = value_type>
  requires(std::is_same_v<typename Weights::value_type, value_type>) static void forward(
      Exec const& exec, operands inputs, Weights const& weights, view<Output, 2> outputs, workspace const& space,
      linear_options const& options = {}) {
    forward(exec, inputs, weights, plain_sum{}, outputs, space, options);
  }

  /// Enqueues outputs = map(inputs weights^T), where panels of the weights have a workspace: that of plan_forward() for
  /// as many tokens, weights as large and the same options. Throws shape_error for a smaller one.
  template <Executor Exec, TileSource Weights, SumMap Map, class Output = value_type>
  requires(std::is_same_v<typename Weights::value_type, value_type>) static void forward(
      Exec const& exec, operands inputs, Weights const& weights, Map map, view<Output, 2> outputs,
      workspace const& space, linear_options const& options = {}) {
    check_extents(inputs, weights.rows(), weights.columns(), outputs);
    check_source(where, "weights", weights);
    check_map(where, map, outputs.extent(0), outputs.extent(1));
    check_places(exec, inputs, weights, map, outputs);
    check_reach(exec, where, "bytes of the workspace", space);
    if (outputs.is_empty()) {
      return;
    }
    panel_layout const layout =
        panels(exec, {inputs.extent(0), weights.rows(), weights.columns()}, options, workspace_plan::record::sizes);
    space.check_room(where, layout.plan.bytes(), inputs.extent(0), " tokens of ", weights.rows(), " x ",
                     weights.columns(), " weights");
    paneled_linear_problem<Operand, Weights, Output, Map> problem{{inputs, weights, outputs, map}, {}};
    if (layout.rows > 0) {
      problem.panel = {space[layout.panel].data, {layout.rows, weights.columns()}, {layout.stride, 1}};
    }
    run(exec, problem);
  }

  /// Refuses calls of forward() with arguments that it does not take, and says at compile time what it takes.
  template <Executor Exec, class Inputs, class Weights, class... Behind>
  requires(sizeof...(Behind) > 0 && !std::is_same_v<Exec, detail::asking_executor> &&
           !detail::takes_call<linear, Inputs, Weights, Behind...>) static void forward(Exec const&, Inputs const&,
                                                                                        Weights const&,
                                                                                        Behind const&...) {
    detail::explain_map<Behind...>();
    static_assert(
        never<Inputs>,
        "tessera: linear.forward takes an executor, inputs and weights as matrix_views of operands (of floats "
        "for tf32), or weights as a TileSource of operands, then perhaps a list of biases or a SumMap, then "
        "outputs as a matrix_view, and where weights are a source perhaps a workspace and linear_options");
  }

 private:
  static constexpr char const* where = "linear.forward";

  /// Where a panel lies in the workspace.
  struct panel_layout {
    workspace_plan plan;
    std::int64_t rows;         ///< rows of a panel; 0: there is none
    std::int64_t stride;       ///< elements from row to row, so that rows begin at multiples of 16 bytes
    region<value_type> panel;  ///< the rows
  };
  struct product_shape {
    std::int64_t tokens;
    std::int64_t columns;
    std::int64_t depth;
  };
  template <Executor Exec>
  static panel_layout panels(Exec const& exec, product_shape const& shape, linear_options const& options,
                             workspace_plan::record what) {
    check<value_error>(options.workspace_budget >= 0, where, ": the budget of the workspace is ",
                       options.workspace_budget, " bytes but must not be negative");
    constexpr auto element = static_cast<std::int64_t>(sizeof(value_type));
    std::int64_t const stride = align_up(max(shape.depth, std::int64_t{1}), std::int64_t{16} / element);
    std::int64_t const most = options.workspace_budget / element / stride;
    std::int64_t const rows = rows_of_panels<Exec, Operand>{}(exec, shape.tokens, shape.columns, most);
    panel_layout layout{workspace_plan(where, what), rows, stride, {}};
    layout.panel = layout.plan.template add<value_type>("a panel of weights", rows * stride);
    return layout;
  }

  /// Throws value_error where an operand lies where programs do not read it.
  template <Executor Exec, class Weights, class Map, class Output = value_type>
  static void check_places(Exec const& exec, operands inputs, Weights const& weights, Map const& map,
                           view<Output, 2> outputs) {
    check_reach(exec, where, "inputs", inputs, "outputs", outputs);
    check_reach_of(exec, where, weights);
    check_reach_of(exec, where, map);
  }

  template <class Output = value_type>
  static void check_shapes(operands inputs, operands weights, view<Output, 2> outputs) {
    check_extents(inputs, weights.extent(0), weights.extent(1), outputs);
    check_memory(where, "weights", weights);
  }

  template <class Output = value_type>
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
