// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Linear layers on CUDA devices, where rows begin at multiples of 16 bytes: on sm_90a by warpgroups and TMA, from
/// sm_80 on by mma.sync from a ring of stages; otherwise by the portable program with mma.sync. On sm_90a weights from
/// a TileSource are made by warpgroups of their own, or for many tokens with a workspace by a program that writes
/// panels of them to memory; from sm_80 on, for up to 16 tokens, codes in chunks are multiplied where they were read.
///
/// linear.hpp includes this header where nvcc compiles: call linear as on the CPU, with a tessera::cuda executor. A
/// call is one launch, or two for each panel, and neither waits nor allocates.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/gemm/linear.hpp>
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
#include <tessera/program/gemm/gemm_ring.cuh>
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

/// Why sm_90a's programs do not take a product of these inputs and extents, or none. Tiles are counted as if all were
/// of 128 x 64, the smallest.
template <class Problem>
refusal refuses_inputs(Problem const& problem) {
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
  return first_of(unless(tiles < most / 2, "numbers of tiles exceed 31 bits"),
                  unless(can_map(problem.inputs), "TMA cannot load the inputs: rows begin at multiples of 16 bytes"));
}

/// Why gemm_cooperative does not take a product's operands and extents, or none.
template <class Operand, class Output, class Map>
refusal refuses_cooperative(linear_problem<Operand, Output, Map> const& problem) {
  return first_of(refuses_inputs(problem),
                  unless(can_map(problem.weights), "TMA cannot load the weights: rows begin at multiples of 16 bytes"));
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

/// Enqueues gemm_cooperative with the policy of `Chosen` and this epilogue. Problem: a linear_problem.
template <Tuning Chosen, class Architectures, class Problem, class Epilogue>
void run_cooperative(basic_cuda<Architectures> const& exec, Problem const& problem, Epilogue const& epilogue,
                     std::int64_t multiprocessors) {
  constexpr warpgroup_gemm_policy policy = policy_of<Chosen>(900);
  using program = gemm_cooperative<typename Problem::operand, dense_schedule, Epilogue, policy>;
  constexpr char const* where = "linear.forward";
  auto const pieces = static_cast<std::int32_t>(divide_up(problem.inputs.extent(1), std::int64_t{program::depth}));
  dense_schedule const schedule{
      {static_cast<std::int32_t>(divide_up(problem.outputs.extent(0), std::int64_t{program::rows})),
       static_cast<std::int32_t>(divide_up(problem.outputs.extent(1), std::int64_t{program::columns})), policy.band},
      pieces};
  program const whole{make_tensor_map(where, problem.inputs, {warpgroup_gemm_shape::block_rows, program::depth}),
                      make_tensor_map(where, problem.weights, {program::b_box_rows, program::depth}), schedule,
                      epilogue};
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
template <class Operand, class Output, class Map, class Architectures>
void run_with_boxes(basic_cuda<Architectures> const& exec, linear_problem<Operand, Output, Map> const& problem,
                    std::int64_t multiprocessors) {
  using boxes = store_sums_by_boxes<Output, Map>;
  tensor_map const target = make_tensor_map("linear.forward", problem.outputs, {boxes::box_rows, boxes::box_columns});
  auto const rows = static_cast<std::int32_t>(problem.outputs.extent(0));
  auto const columns = static_cast<std::int32_t>(problem.outputs.extent(1));
  boxes const epilogue{{target, rows, columns, problem.map}};
  if (suits_small_tiles(rows, columns, multiprocessors)) {
    run_cooperative<small_warpgroup_gemm_tuning>(exec, problem, epilogue, multiprocessors);
  } else {
    run_cooperative<warpgroup_gemm_tuning>(exec, problem, epilogue, multiprocessors);
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

}  // namespace detail

/// gemm_cooperative: sm_90a, operands that TMA can load.
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
    using directly = store_sums_directly<Output, Map>;
    return first_of(detail::refuses_cooperative(problem),
                    exec.template lacks<gemm_cooperative<Operand, dense_schedule, directly, policy>>());
  }
  template <class Architectures, class Operand, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec, linear_problem<Operand, Output, Map> const& problem) {
    int const multiprocessors = exec.state->multiprocessors();
    if constexpr (detail::is_stored_by_boxes<Output>) {
      if (detail::suits_box_stores(problem.outputs)) {
        detail::run_with_boxes(exec, problem, multiprocessors);
        return;
      }
    }
    store_sums_directly<Output, Map> const directly{problem.outputs, problem.map};
    detail::run_cooperative<warpgroup_gemm_tuning>(exec, problem, directly, multiprocessors);
  }
};

/// gemm_ring: sm_80 and later, rows that begin and end at multiples of 16 bytes.
struct gemm_ring_model {
  static constexpr char const* name = "gemm_ring (cp.async, mma.sync)";

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    return unless(!std::is_same_v<typename Problem::operand, float>, "mma.sync does not multiply fp32, only tf32");
  }
  template <class Architectures, class Operand, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const& exec, linear_problem<Operand, Output, Map> const& problem) {
    constexpr std::int64_t most = 0x7fffffff - 512;  // coordinates and numbers of tiles are 32-bit
    using chunks = dense_chunks<typename gemm_operand<Operand>::value_type>;
    using directly = program_for<Operand, store_sums_directly<Output, Map>>;
    std::int64_t const rows = problem.outputs.extent(0);
    std::int64_t const columns = problem.outputs.extent(1);
    std::int64_t const tiles =
        divide_up(rows, std::int64_t{directly::rows}) * divide_up(columns, std::int64_t{directly::columns});
    return first_of(
        exec.template lacks<directly>(), unless(problem.inputs.extent(1) > 0, "inputs have no columns"),
        unless(rows < most && columns < most && problem.inputs.extent(1) < most && tiles < most / 4,
               "extents exceed 31 bits"),
        unless(chunks::suits(problem.inputs), "rows of inputs do not begin and end at multiples of 16 bytes"),
        unless(chunks::suits(problem.weights), "rows of weights do not begin and end at multiples of 16 bytes"));
  }
  template <class Architectures, class Operand, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec, linear_problem<Operand, Output, Map> const& problem) {
    if constexpr (is_16_bit_float<Output>) {
      if (dense_chunks<Output>::suits(problem.outputs)) {
        return run_by_rows(exec, problem, store_sums_by_rows<Output, Map>{{problem.outputs}, problem.map});
      }
    }
    run_with<gemm_ring_tuning>(exec, problem, store_sums_directly<Output, Map>{problem.outputs, problem.map});
  }

 private:
  template <class Operand, class Epilogue, Tuning Chosen = gemm_ring_tuning>
  using program_for = gemm_ring<Operand, dense_schedule, Epilogue, policy_of<Chosen>(800)>;

  /// Enqueues the product by the policy that costs least, of those for which the device has the shared memory.
  template <class Exec, class Problem, class Epilogue>
  static void run_by_rows(Exec const& exec, Problem const& problem, Epilogue const& epilogue) {
    using operand = typename Problem::operand;
    if constexpr (is_16_bit_float<operand>) {
      using tall = program_for<operand, Epilogue, tall_gemm_ring_tuning>;
      using wide = program_for<operand, Epilogue, wide_gemm_ring_tuning>;
      auto const cost = [&](gemm_ring_policy policy) {
        return gemm_ring_cost(policy, problem.outputs.extent(0), problem.outputs.extent(1),
                              exec.state->multiprocessors());
      };
      std::int64_t const of_wide = cost(policy_of<wide_gemm_ring_tuning>(800));
      std::int64_t const of_others = cost(policy_of<gemm_ring_tuning>(800));
      if (cost(policy_of<tall_gemm_ring_tuning>(800)) < min(of_wide, of_others) && !exec.template lacks<tall>()) {
        return run_with<tall_gemm_ring_tuning>(exec, problem, epilogue);
      }
      if (of_wide < of_others && !exec.template lacks<wide>()) {
        return run_with<wide_gemm_ring_tuning>(exec, problem, epilogue);
      }
    }
    run_with<gemm_ring_tuning>(exec, problem, epilogue);
  }
  template <Tuning Chosen, class Exec, class Problem, class Epilogue>
  static void run_with(Exec const& exec, Problem const& problem, Epilogue const& epilogue) {
    constexpr std::int32_t band = 8;  // rows of tiles that are taken together
    using ring = program_for<typename Problem::operand, Epilogue, Chosen>;
    auto const tiles_of = [](std::int64_t extent, int size) {
      return static_cast<std::int32_t>(divide_up(extent, std::int64_t{size}));
    };
    dense_schedule const schedule{
        {tiles_of(problem.outputs.extent(0), ring::rows), tiles_of(problem.outputs.extent(1), ring::columns), band},
        tiles_of(problem.inputs.extent(1), ring::depth)};
    ring const whole{{problem.inputs}, {problem.weights}, schedule, epilogue};
    exec.run(whole, min(schedule.order.count(),
                        std::int64_t{exec.state->multiprocessors()} * ring::blocks_per_multiprocessor));
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

/// store_source and gemm_cooperative for one panel after the other: sm_90a, weights from any TileSource.
struct gemm_of_panels_model {
  static constexpr char const* name = "store_source, gemm_cooperative (TMA, wgmma)";

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    return gemm_cooperative_model::refuses_types<Exec, Problem>();
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const& exec,
                         paneled_linear_problem<Operand, Weights, Output, Map> const& problem) {
    if (problem.panel.data == nullptr) {
      return unless(false, "the workspace has no panel of weights");
    }
    return gemm_cooperative_model::refuses(exec, product(problem, 0));
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec,
                  paneled_linear_problem<Operand, Weights, Output, Map> const& problem) {
    for (std::int64_t first = 0; first < problem.weights.rows(); first += problem.panel.extent(0)) {
      auto const of_panel = product(problem, first);
      store_source<Weights> const panel{problem.weights, problem.panel.slice(0, 0, of_panel.outputs.extent(1)), first};
      exec.run(panel, panel.groups());
      gemm_cooperative_model::run(exec, of_panel);
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

/// Panels are as large as each other, but the last.
template <class Architectures, class Operand>
struct rows_of_panels<basic_cuda<Architectures>, Operand> {
  using executor = basic_cuda<Architectures>;  ///< the executor that writes them
  /// The number of rows, at most `most`; 0 for few tokens, and where the program is not compiled or not for the device.
  std::int64_t operator()(executor const& exec, std::int64_t tokens, std::int64_t columns, std::int64_t most) const {
    constexpr panel_gemm_policy policy = policy_of<panel_gemm_tuning>(900);
    constexpr bool has_program =
        !gemm_cooperative_model::refuses_types<executor, linear_problem<Operand, float, plain_sum>>();
    if (!has_program || exec.state->architecture() != 900 || tokens < policy.least_tokens) {
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
  using type = model_list<gemm_few_rows_model, gemm_from_source_model>;
};
/// The same where weights are exact codes with scales of groups.
template <class Architectures, class Operand, OperandCodes Weights, class Output, class Map>
struct models_for<basic_cuda<Architectures>, source_linear_problem<Operand, Weights, Output, Map>> {
  /// The list of models.
  using type =
      model_list<gemm_few_rows_boxes_model, gemm_few_rows_scaled_model, gemm_few_rows_model, gemm_from_source_model>;
};

/// The same where weights are those of a coded_matrix.
template <class Architectures, class Output, class Map>
struct models_for<basic_cuda<Architectures>, source_linear_problem<bfloat16, coded_weights, Output, Map>> {
  /// The list of models.
  using type =
      model_list<gemm_few_rows_boxes_model, gemm_few_rows_coded_model, gemm_few_rows_model, gemm_from_source_model>;
};

/// The same with memory for panels.
template <class Architectures, class Operand, class Weights, class Output, class Map>
struct models_for<basic_cuda<Architectures>, paneled_linear_problem<Operand, Weights, Output, Map>> {
  /// The list of models.
  using type = model_list<gemm_few_rows_model, gemm_of_panels_model, gemm_from_source_model>;
};
/// The same where weights are exact codes with scales of groups.
template <class Architectures, class Operand, OperandCodes Weights, class Output, class Map>
struct models_for<basic_cuda<Architectures>, paneled_linear_problem<Operand, Weights, Output, Map>> {
  /// The list of models.
  using type = model_list<gemm_few_rows_boxes_model, gemm_few_rows_scaled_model, gemm_few_rows_model,
                          gemm_of_panels_model, gemm_from_source_model>;
};
/// The same where weights are those of a coded_matrix.
template <class Architectures, class Output, class Map>
struct models_for<basic_cuda<Architectures>, paneled_linear_problem<bfloat16, coded_weights, Output, Map>> {
  /// The list of models.
  using type = model_list<gemm_few_rows_boxes_model, gemm_few_rows_coded_model, gemm_few_rows_model,
                          gemm_of_panels_model, gemm_from_source_model>;
};

/// The programs that CUDA devices have for this call.
template <class Architectures, class Operand, class Output, class Map>
struct models_for<basic_cuda<Architectures>, linear_problem<Operand, Output, Map>> {
  /// The list of models.
  using type = model_list<gemm_cooperative_model, gemm_ring_model>;
};

}  // namespace v0
}  // namespace tessera
