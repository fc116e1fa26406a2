// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Linear layers on CUDA devices, where rows begin at multiples of 16 bytes: on sm_90a by warpgroups and TMA, from
/// sm_80 on by mma.sync from a ring of stages; otherwise by the portable program with mma.sync. Weights from a
/// TileSource are made on sm_90a by warpgroups of their own, from sm_80 on by the warps that multiply, or for many
/// tokens with a workspace by a program that writes panels of them to memory; and for up to 16 tokens codes in chunks
/// are multiplied where they were read.
///
/// Operands of 16 bits may lie across the depth, so that rows of their transposes begin at multiples of 16 bytes:
/// tensor cores turn them. Other types they take only along the depth, and the portable program multiplies those.
///
/// linear.hpp includes this header where nvcc compiles: call linear as on the CPU, with a tessera::cuda executor. A
/// call is one launch, or two for each panel, and neither waits nor allocates.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/gemm/linear_by_ring.cuh>
#include <tessera/algorithm/gemm/linear_of_few_rows.cuh>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/map/from_column.hpp>
#include <tessera/program/gemm/gemm_cooperative.cuh>
#include <tessera/program/gemm/gemm_from_source.cuh>
#include <tessera/program/gemm/store_source.hpp>
#include <tessera/program/gemm/store_sums.cuh>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/source/coded_weights.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/scaled_source.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Why sm_90a's programs do not take a product of these extents, or none. Tiles are counted as if all were of 128 x 64,
/// the smallest.
template <class Problem>
refusal refuses_extents(Problem const& problem) {
  constexpr std::int64_t most = 0x7fffffff - 512;  // coordinates of tiles are 32-bit
  std::int64_t const tokens = problem.outputs.extent(0);
  std::int64_t const columns = problem.outputs.extent(1);
  std::int64_t const depth = problem.inputs.extent(1);
  if (refusal const why = first_of(unless(depth > 0, "inputs have no columns"),
                                   unless(tokens < most && columns < most && depth < most, "extents exceed 31 bits"))) {
    return why;
  }
  std::int64_t const tiles =
      divide_up(tokens, std::int64_t{warpgroup_gemm_shape::block_rows}) * divide_up(columns, std::int64_t{64});
  return unless(tiles < most / 2, "numbers of tiles exceed 31 bits");
}

/// What sm_90a's programs say of operands.
inline constexpr char const* inputs_are_unaligned = "TMA cannot load the inputs: rows begin at multiples of 16 bytes";
inline constexpr char const* weights_are_unaligned = "TMA cannot load the weights: rows begin at multiples of 16 bytes";

/// Why these programs do not take a product's extents and inputs along the depth, or none.
template <class Problem>
refusal refuses_inputs(Problem const& problem) {
  return first_of(refuses_extents(problem), unless(can_map(problem.inputs), inputs_are_unaligned));
}

/// Whether store_sums_by_boxes writes this type.
template <class Output>
inline constexpr bool is_stored_by_boxes =
    is_16_bit_float<Output> || std::is_same_v<Output, float> || std::is_same_v<Output, std::int32_t>;

/// Whether TMA can write the outputs: it writes whole units of 16 bytes, so that rows must begin and end at them.
template <class Output>
bool suits_box_stores(matrix_view<Output> outputs) {
  return can_map(outputs) && outputs.extent(1) * static_cast<std::int64_t>(sizeof(Output)) % 16 == 0;
}

/// Enqueues gemm_cooperative with these Operands, the policy of `Chosen` and this epilogue. Problem: a linear_problem.
template <class Operands, Tuning Chosen, class Architectures, class Problem, class Epilogue>
void run_cooperative(basic_cuda<Architectures> const& exec, Problem const& problem, Epilogue const& epilogue,
                     std::int64_t multiprocessors) {
  constexpr warpgroup_gemm_policy policy = policy_of<Chosen>(900);
  using program = gemm_cooperative<Operands, dense_schedule, Epilogue, policy>;
  constexpr char const* where = "linear.forward";
  auto const pieces = static_cast<std::int32_t>(divide_up(problem.inputs.extent(1), std::int64_t{program::depth}));
  dense_schedule const schedule{
      {static_cast<std::int32_t>(divide_up(problem.outputs.extent(0), std::int64_t{program::rows})),
       static_cast<std::int32_t>(divide_up(problem.outputs.extent(1), std::int64_t{program::columns})), policy.band},
      pieces};
  program const whole{make_tensor_map(where, in_order<program::orders::a>(problem.inputs), program::of_a::box),
                      make_tensor_map(where, in_order<program::orders::b>(problem.weights), program::of_b::box),
                      schedule, epilogue};
  std::int64_t const resident = max(multiprocessors / policy.blocks, std::int64_t{1});  // clusters at a time
  exec.run(whole, min(schedule.order.count(), resident) * policy.blocks);
}

/// Whether all small tiles can be computed at the same time. A small tile takes about 0.6 of the time of a large one.
inline bool suits_small_tiles(std::int64_t tokens, std::int64_t columns, std::int64_t multiprocessors) {
  constexpr warpgroup_gemm_policy small = policy_of<small_warpgroup_gemm_tuning>(900);
  return divide_up(tokens, std::int64_t{warpgroup_gemm_shape::block_rows}) *
             divide_up(columns, std::int64_t{small.columns}) <=
         multiprocessors;
}

/// Enqueues the product for outputs that suits_box_stores() accepts, with large tiles or with small ones.
template <class Operands, class Operand, class Output, class Map, class Architectures>
void run_with_boxes(basic_cuda<Architectures> const& exec, linear_problem<Operand, Output, Map> const& problem,
                    std::int64_t multiprocessors) {
  using boxes = store_sums_by_boxes<Output, Map>;
  tensor_map const target = make_tensor_map("linear.forward", problem.outputs, {boxes::box_rows, boxes::box_columns});
  auto const rows = static_cast<std::int32_t>(problem.outputs.extent(0));
  auto const columns = static_cast<std::int32_t>(problem.outputs.extent(1));
  boxes const epilogue{{target, rows, columns, problem.map}};
  if (suits_small_tiles(rows, columns, multiprocessors)) {
    run_cooperative<Operands, small_warpgroup_gemm_tuning>(exec, problem, epilogue, multiprocessors);
  } else {
    run_cooperative<Operands, warpgroup_gemm_tuning>(exec, problem, epilogue, multiprocessors);
  }
}

/// Enqueues gemm_from_source with the policy of `Chosen` and this epilogue. Problem: a source_linear_problem.
template <Tuning Chosen, class Architectures, class Problem, class Epilogue>
void run_from_source_by(basic_cuda<Architectures> const& exec, Problem const& problem, Epilogue const& epilogue) {
  constexpr source_gemm_policy policy = policy_of<Chosen>(900);
  using program = gemm_from_source<typename Problem::operand, decltype(problem.weights), Epilogue, policy>;
  dense_schedule const schedule{
      {static_cast<std::int32_t>(divide_up(problem.outputs.extent(0), std::int64_t{program::rows})),
       static_cast<std::int32_t>(divide_up(problem.outputs.extent(1), std::int64_t{program::columns})), policy.band},
      static_cast<std::int32_t>(divide_up(problem.inputs.extent(1), std::int64_t{program::depth}))};
  program const whole{make_tensor_map("linear.forward", problem.inputs, {program::rows, program::depth}),
                      problem.weights, schedule, epilogue};
  exec.run(whole, min(schedule.order.count(), std::int64_t{exec.state->multiprocessors()}));
}

/// Enqueues the product with tall tiles, or with small ones where tall ones would not fill half of the chip.
template <class Architectures, class Problem, class Epilogue>
void run_from_source(basic_cuda<Architectures> const& exec, Problem const& problem, Epilogue const& epilogue) {
  constexpr source_gemm_policy tall = policy_of<source_gemm_tuning>(900);
  std::int64_t const tiles = divide_up(problem.outputs.extent(0), std::int64_t{tall.rows}) *
                             divide_up(problem.outputs.extent(1), std::int64_t{tall.columns});
  if (2 * tiles < exec.state->multiprocessors()) {
    run_from_source_by<small_source_gemm_tuning>(exec, problem, epilogue);
  } else {
    run_from_source_by<source_gemm_tuning>(exec, problem, epilogue);
  }
}

/// Whether TMA can write these outputs, for programs that write them in no other way.
template <class Output>
bool can_store_boxes(matrix_view<Output> outputs) {
  if constexpr (is_stored_by_boxes<Output>) {
    return suits_box_stores(outputs);
  } else {
    return false;
  }
}

}  // namespace detail

/// gemm_cooperative: sm_90a, operands that TMA can load, or where elements have 2 bytes whose transposes it can. Of
/// these TMA also writes the outputs, so that fewer programs are compiled.
struct gemm_cooperative_model {
  static constexpr char const* name = "gemm_cooperative (TMA, wgmma)";
  /// The policy of large tiles.
  static constexpr warpgroup_gemm_policy policy = policy_of<warpgroup_gemm_tuning>(900);

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    constexpr bool is_hopper = Exec::template is_compiled_for<900>;
    return first_of(
        unless(is_hopper, "this source is not compiled for sm_90a"),
        unless(!std::is_same_v<typename Problem::operand, float>, "wgmma does not multiply fp32, only tf32"));
  }
  template <class Architectures, class Operand, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const& exec, linear_problem<Operand, Output, Map> const& problem) {
    using asked = linear_problem<Operand, Output, Map>;
    using directly = store_sums_directly<Output, Map>;
    auto const takes = [](auto const& matrix) { return can_map(matrix); };
    return first_of(
        detail::refuses_extents(problem),
        detail::refuses_operand<asked>(problem.inputs, takes, detail::inputs_are_unaligned,
                                       "inputs lie across the depth, where wgmma takes only elements of 2 bytes"),
        detail::refuses_operand<asked>(problem.weights, takes, detail::weights_are_unaligned,
                                       "weights lie across the depth, where wgmma takes only elements of 2 bytes"),
        detail::refuses_orders<asked>(!can_map(problem.inputs), !can_map(problem.weights)),
        unless((can_map(problem.inputs) && can_map(problem.weights)) || detail::can_store_boxes(problem.outputs),
               "operands lie across the depth, and TMA cannot write the outputs: elements have 2 or 4 "
               "bytes, and rows begin and end at multiples of 16"),
        exec.template lacks<gemm_cooperative<Operand, dense_schedule, directly, policy>>());
  }
  template <class Architectures, class Operand, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec, linear_problem<Operand, Output, Map> const& problem) {
    int const multiprocessors = exec.state->multiprocessors();
    using asked = linear_problem<Operand, Output, Map>;
    detail::with_ordered_operands<asked>(!can_map(problem.inputs), !can_map(problem.weights), [&](auto named) {
      using operands = typename decltype(named)::type;
      if constexpr (detail::is_stored_by_boxes<Output>) {
        if (detail::suits_box_stores(problem.outputs)) {
          return detail::run_with_boxes<operands>(exec, problem, multiprocessors);
        }
      }
      if constexpr (std::is_same_v<operands, Operand>) {
        store_sums_directly<Output, Map> const directly{problem.outputs, problem.map};
        detail::run_cooperative<Operand, warpgroup_gemm_tuning>(exec, problem, directly, multiprocessors);
      }
    });
  }
};

/// gemm_from_source: sm_90a, inputs that TMA can load, weights from any TileSource.
struct gemm_from_source_model {
  static constexpr char const* name = "gemm_from_source (TMA, wgmma)";

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    return gemm_cooperative_model::refuses_types<Exec, Problem>();
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const& exec,
                         source_linear_problem<Operand, Weights, Output, Map> const& problem) {
    using directly = store_sums_directly<Output, Map>;
    constexpr source_gemm_policy policy = policy_of<small_source_gemm_tuning>(900);
    return first_of(detail::refuses_inputs(problem),
                    exec.template lacks<gemm_from_source<Operand, Weights, directly, policy>>());
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec,
                  source_linear_problem<Operand, Weights, Output, Map> const& problem) {
    if constexpr (detail::is_stored_by_boxes<Output>) {
      if (detail::suits_box_stores(problem.outputs)) {
        using boxes = store_sums_by_boxes<Output, Map>;
        tensor_map const target =
            make_tensor_map("linear.forward", problem.outputs, {boxes::box_rows, boxes::box_columns});
        detail::run_from_source(exec, problem,
                                boxes{{target, static_cast<std::int32_t>(problem.outputs.extent(0)),
                                       static_cast<std::int32_t>(problem.outputs.extent(1)), problem.map}});
        return;
      }
    }
    detail::run_from_source_by<small_source_gemm_tuning>(
        exec, problem, store_sums_directly<Output, Map>{problem.outputs, problem.map});
  }
};

namespace detail {

/// store_source, and a product with what it wrote, for one panel after the other: weights from any TileSource. Product:
/// a model of products with weights in memory.
template <class Product>
struct gemm_of_panels {
  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    return Product::template refuses_types<Exec, Problem>();
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const& exec,
                         paneled_linear_problem<Operand, Weights, Output, Map> const& problem) {
    if (problem.panel.data == nullptr) {
      return unless(false, "the workspace has no panel of weights");
    }
    return Product::refuses(exec, product(problem, 0));
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec,
                  paneled_linear_problem<Operand, Weights, Output, Map> const& problem) {
    for (std::int64_t first = 0; first < problem.weights.rows(); first += problem.panel.extent(0)) {
      auto const of_panel = product(problem, first);
      store_source<Weights> const panel{problem.weights, problem.panel.slice(0, 0, of_panel.outputs.extent(1)), first};
      exec.run(panel, panel.groups());
      Product::run(exec, of_panel);
    }
  }

 private:
  /// The product with the panel of rows from `first` on.
  template <class Operand, class Weights, class Output, class Map>
  static linear_problem<Operand, Output, from_column<Map>> product(
      paneled_linear_problem<Operand, Weights, Output, Map> const& problem, std::int64_t first) {
    std::int64_t const rows = min(problem.panel.extent(0), problem.weights.rows() - first);
    return {
        problem.inputs, problem.panel.slice(0, 0, rows), problem.outputs.slice(1, first, rows), {problem.map, first}};
  }
};

}  // namespace detail

/// store_source and gemm_cooperative: sm_90a.
struct gemm_of_panels_model : detail::gemm_of_panels<gemm_cooperative_model> {
  static constexpr char const* name = "store_source, gemm_cooperative (TMA, wgmma)";
};
/// store_source and gemm_ring: sm_80 and later.
struct gemm_ring_of_panels_model : detail::gemm_of_panels<gemm_ring_model> {
  static constexpr char const* name = "store_source, gemm_ring (cp.async, mma.sync)";
};

/// Panels are as large as each other, but the last.
template <class Architectures, class Operand>
struct rows_of_panels<basic_cuda<Architectures>, Operand> {
  using executor = basic_cuda<Architectures>;  ///< the executor that writes them
  /// The number of rows, at most `most`; 0 for few tokens, and where no program multiplies such operands by panels.
  std::int64_t operator()(executor const& exec, std::int64_t tokens, std::int64_t columns, std::int64_t most) const {
    using problem = linear_problem<Operand, float, plain_sum>;
    constexpr bool is_for_hopper = !gemm_cooperative_model::refuses_types<executor, problem>();
    constexpr bool has_ring = !gemm_ring_model::refuses_types<executor, problem>();
    bool const is_hopper = is_for_hopper && exec.state->architecture() == 900;
    panel_gemm_policy const policy = is_hopper ? policy_of<panel_gemm_tuning>(900) : policy_of<panel_gemm_tuning>(800);
    if ((!is_hopper && !has_ring) || tokens < policy.least_tokens) {
      return 0;
    }
    std::int64_t const at_a_time = most < columns ? most / policy.rows * policy.rows : columns;
    if (at_a_time <= 0) {
      return 0;
    }
    std::int64_t const panels = divide_up(columns, at_a_time);
    return min(align_up(divide_up(columns, panels), std::int64_t{policy.rows}), at_a_time);
  }
};

/// The programs that CUDA devices have for products with weights from a source.
template <class Architectures, class Operand, class Weights, class Output, class Map>
struct models_for<basic_cuda<Architectures>, source_linear_problem<Operand, Weights, Output, Map>> {
  /// The list of models.
  using type = model_list<gemm_few_rows_model, gemm_from_source_model, gemm_ring_from_source_model>;
};
/// The same where weights are exact codes with scales of groups.
template <class Architectures, class Operand, OperandCodes Weights, class Output, class Map>
struct models_for<basic_cuda<Architectures>, source_linear_problem<Operand, Weights, Output, Map>> {
  /// The list of models.
  using type = model_list<gemm_few_rows_boxes_model, gemm_few_rows_scaled_model, gemm_few_rows_model,
                          gemm_from_source_model, gemm_ring_from_source_model>;
};

/// The same where weights are those of a coded_matrix.
template <class Architectures, class Output, class Map>
struct models_for<basic_cuda<Architectures>, source_linear_problem<bfloat16, coded_weights, Output, Map>> {
  /// The list of models.
  using type = model_list<gemm_few_rows_boxes_model, gemm_few_rows_coded_model, gemm_few_rows_model,
                          gemm_from_source_model, gemm_ring_from_source_model>;
};

/// The same with memory for panels.
template <class Architectures, class Operand, class Weights, class Output, class Map>
struct models_for<basic_cuda<Architectures>, paneled_linear_problem<Operand, Weights, Output, Map>> {
  /// The list of models.
  using type = model_list<gemm_few_rows_model, gemm_of_panels_model, gemm_ring_of_panels_model, gemm_from_source_model,
                          gemm_ring_from_source_model>;
};
/// The same where weights are exact codes with scales of groups.
template <class Architectures, class Operand, OperandCodes Weights, class Output, class Map>
struct models_for<basic_cuda<Architectures>, paneled_linear_problem<Operand, Weights, Output, Map>> {
  /// The list of models.
  using type =
      model_list<gemm_few_rows_boxes_model, gemm_few_rows_scaled_model, gemm_few_rows_model, gemm_of_panels_model,
                 gemm_ring_of_panels_model, gemm_from_source_model, gemm_ring_from_source_model>;
};
/// The same where weights are those of a coded_matrix.
template <class Architectures, class Output, class Map>
struct models_for<basic_cuda<Architectures>, paneled_linear_problem<bfloat16, coded_weights, Output, Map>> {
  /// The list of models.
  using type =
      model_list<gemm_few_rows_boxes_model, gemm_few_rows_coded_model, gemm_few_rows_model, gemm_of_panels_model,
                 gemm_ring_of_panels_model, gemm_from_source_model, gemm_ring_from_source_model>;
};

/// The programs that CUDA devices have for this call.
template <class Architectures, class Operand, class Output, class Map>
struct models_for<basic_cuda<Architectures>, linear_problem<Operand, Output, Map>> {
  /// The list of models.
  using type = model_list<gemm_cooperative_model, gemm_ring_model>;
};

}  // namespace v0
}  // namespace tessera
