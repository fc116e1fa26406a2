// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Linear layers of scaled codes on CUDA devices. Rows of codes that begin at multiples of 16 bytes, with groups of a
/// multiple of 128 columns, are multiplied on sm_90a by warpgroups and TMA where TMA can write the outputs, otherwise
/// and from sm_80 on by mma.sync, where rows of codes also end at multiples of 16 bytes, into outputs of any strides.
/// Before sm_89 8-bit floats are widened to fp16. Other layers have the portable program, which reads codes one by one.
///
/// scaled_linear.hpp includes this header where nvcc compiles. A call is one launch, and neither waits nor allocates.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/algorithm/gemm/linear_by_ring.cuh>
#include <tessera/algorithm/gemm/scaled_linear.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/tuning.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/gemm/gemm_ring.cuh>
#include <tessera/program/gemm/gemm_scaled_groups.cuh>
#include <tessera/program/gemm/store_sums.cuh>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tuning/gemm/scaled_linear.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether a source is a matrix of 8-bit codes with scales in memory for groups of whole k-tiles.
template <class S>
inline constexpr bool has_groups_of_k_tiles = sizeof(typename S::value_type) == 1 && S::group % 128 == 0 &&
                                              requires(S const& s, std::int64_t i) {
  s.codes.data;
  static_cast<float const*>(s.scale_address(i, i));
  s.params.stride(1);
};

/// The tuning of gemm_scaled_groups for inputs and weights of a type.
template <class Weights>
using tuning_of_scaled_groups = std::conditional_t<
    !shares_scales<Weights>, scaled_columns_tuning,
    std::conditional_t<std::is_integral_v<typename Weights::value_type>, scaled_integers_tuning, scaled_groups_tuning>>;

}  // namespace detail

/// gemm_scaled_groups: sm_90a, 8-bit codes that TMA can load, groups of a multiple of 128 columns.
struct gemm_scaled_groups_model {
  static constexpr char const* name = "gemm_scaled_groups (TMA, wgmma)";

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    using output = std::remove_cvref_t<decltype(*Problem::outputs.data)>;
    constexpr bool is_hopper = Exec::template is_compiled_for<900>;
    constexpr bool has_groups = detail::has_groups_of_k_tiles<decltype(Problem::inputs)> &&
                                detail::has_groups_of_k_tiles<decltype(Problem::weights)>;
    return first_of(
        unless(is_hopper, "this source is not compiled for sm_90a"),
        unless(has_groups, "operands are no 8-bit codes with groups of multiples of 128 columns"),
        unless(is_16_bit_float<output> || std::is_same_v<output, float>, "outputs are no floats of 2 or 4 bytes"));
  }
  template <class Architectures, class Inputs, class Weights, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const& exec,
                         scaled_linear_problem<Inputs, Weights, Output, Map> const& problem) {
    constexpr std::int64_t most = 0x7fffffff - 512;  // coordinates of tiles are 32-bit
    std::int64_t const tokens = problem.outputs.extent(0);
    std::int64_t const columns = problem.outputs.extent(1);
    std::int64_t const depth = problem.inputs.columns();
    std::int64_t const tiles = divide_up(tokens, std::int64_t{128}) * divide_up(columns, std::int64_t{128});
    return first_of(
        unless(depth > 0, "inputs have no columns"),
        unless(tokens < most && columns < most && depth < most && tiles < most / 2, "extents exceed 31 bits"),
        unless(can_map(problem.inputs.codes) && can_map(problem.weights.codes),
               "TMA cannot load the codes: rows begin at multiples of 16 bytes"),
        unless(detail::suits_box_stores(problem.outputs),
               "TMA cannot write the outputs: rows begin and end at multiples of 16 bytes"),
        exec.template lacks<program_for<Inputs, Weights, Output, Map>>());
  }
  template <class Architectures, class Inputs, class Weights, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec,
                  scaled_linear_problem<Inputs, Weights, Output, Map> const& problem) {
    using program = program_for<Inputs, Weights, Output, Map>;
    using boxes = store_sums_by_boxes<Output, Map>;
    constexpr warpgroup_gemm_policy policy = program::policy;
    constexpr char const* where = "scaled_linear.forward";
    auto const tokens = static_cast<std::int32_t>(problem.outputs.extent(0));
    auto const columns = static_cast<std::int32_t>(problem.outputs.extent(1));
    auto const k_tiles = static_cast<std::int32_t>(divide_up(problem.inputs.columns(), std::int64_t{program::depth}));
    dense_schedule const schedule{{static_cast<std::int32_t>(divide_up(tokens, program::rows)),
                                   static_cast<std::int32_t>(divide_up(columns, program::columns)), policy.band},
                                  k_tiles};
    program const whole{
        make_tensor_map(where, problem.inputs.codes, {warpgroup_gemm_shape::block_rows, program::depth}),
        make_tensor_map(where, problem.weights.codes, {program::b_box_rows, program::depth}),
        problem.inputs,
        problem.weights,
        schedule,
        boxes{make_tensor_map(where, problem.outputs, {boxes::box_rows, boxes::box_columns}), tokens, columns,
              problem.map},
        program::has_neighbours(problem.weights)};
    std::int64_t const resident = max(std::int64_t{exec.state->multiprocessors() / policy.blocks}, std::int64_t{1});
    exec.run(whole, min(schedule.order.count(), resident) * policy.blocks);
  }

 private:
  template <class Inputs, class Weights, class Output, class Map>
  using program_for = gemm_scaled_groups<Inputs, Weights, store_sums_by_boxes<Output, Map>,
                                         policy_of<detail::tuning_of_scaled_groups<Weights>>(900)>;
};

/// gemm_ring with scales: sm_80 and later, 8-bit codes whose rows begin and end at multiples of 16 bytes, groups of a
/// multiple of 128 columns.
struct gemm_scaled_ring_model {
  static constexpr char const* name = "gemm_ring of scaled codes (cp.async, mma.sync)";

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    constexpr bool has_groups = detail::has_groups_of_k_tiles<decltype(Problem::inputs)> &&
                                detail::has_groups_of_k_tiles<decltype(Problem::weights)>;
    return unless(has_groups, "operands are no 8-bit codes with groups of multiples of 128 columns");
  }
  template <class Architectures, class Inputs, class Weights, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const& exec,
                         scaled_linear_problem<Inputs, Weights, Output, Map> const& problem) {
    using chunks = dense_chunks<typename Inputs::value_type>;
    using directly = store_sums_directly<Output, Map>;
    using last = ring<Inputs, Weights, directly, last_tuning<Inputs>>;
    return first_of(
        lacks_all<directly>(exec, problem, tunings_of<Inputs, Weights, false>{}),
        detail::refuses_ring_extents<last>(codes_of(problem)),
        unless(chunks::suits(problem.inputs.codes), detail::ring_inputs_are_unaligned),
        unless(chunks::suits(problem.weights.codes), "rows of weights do not begin and end at multiples of 16 bytes"));
  }
  template <class Architectures, class Inputs, class Weights, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec,
                  scaled_linear_problem<Inputs, Weights, Output, Map> const& problem) {
    if constexpr (is_16_bit_float<Output>) {
      if (dense_chunks<Output>::suits(problem.outputs)) {
        store_sums_by_rows<Output, Map> const by_rows{{problem.outputs}, problem.map};
        return run_first(exec, problem, by_rows, tunings_of<Inputs, Weights, true>{});
      }
    }
    store_sums_directly<Output, Map> const directly{problem.outputs, problem.map};
    run_first(exec, problem, directly, tunings_of<Inputs, Weights, false>{});
  }

 private:
  template <class Inputs, class Weights, class Epilogue, Tuning Chosen>
  using ring = detail::whole_ring<operands_with_scales<Inputs, Weights>, Epilogue, Chosen>;
  /// Policies in the order in which they are tried.
  template <Tuning...>
  struct tunings {};
  /// The last one for a type of codes, which has the smallest tiles.
  template <class Inputs>
  using last_tuning = std::conditional_t<std::is_integral_v<typename Inputs::value_type>, small_scaled_ring_tuning,
                                         widened_scaled_ring_tuning>;
  /// Those for codes and, where ByRows, for outputs that are written by rows.
  template <class Inputs, class Weights, bool ByRows>
  using tunings_of = std::conditional_t<
      !std::is_integral_v<typename Inputs::value_type>,
      std::conditional_t<ByRows, tunings<small_scaled_ring_tuning, wide_widened_ring_tuning, last_tuning<Inputs>>,
                         tunings<small_scaled_ring_tuning, last_tuning<Inputs>>>,
      std::conditional_t<ByRows && detail::shares_scales<Weights>, tunings<scaled_ring_tuning, last_tuning<Inputs>>,
                         tunings<last_tuning<Inputs>>>>;

  /// Why the device has the program of none of the policies, or none.
  template <class Epilogue, class Problem, Tuning... Chosen>
  static refusal lacks_all(auto const& exec, Problem const&, tunings<Chosen...>) {
    refusal last;
    static_cast<void>((
        ... &&
        (last = exec.template lacks<ring<decltype(Problem::inputs), decltype(Problem::weights), Epilogue, Chosen>>())));
    return last;
  }
  /// The product of the codes, without scales.
  template <class Inputs, class Weights, class Output, class Map>
  static linear_problem<typename Inputs::value_type, Output, Map> codes_of(
      scaled_linear_problem<Inputs, Weights, Output, Map> const& problem) {
    return {problem.inputs.codes, problem.weights.codes, problem.outputs, problem.map};
  }
  /// Enqueues the product by the first policy that the device has the code and the shared memory for.
  template <class Problem, class Epilogue, Tuning First, Tuning... Others>
  static void run_first(auto const& exec, Problem const& problem, Epilogue const& epilogue, tunings<First, Others...>) {
    using first = ring<decltype(Problem::inputs), decltype(Problem::weights), Epilogue, First>;
    if constexpr (sizeof...(Others) > 0) {
      if (exec.template lacks<first>()) {
        return run_first(exec, problem, epilogue, tunings<Others...>{});
      }
    }
    detail::run_ring<first>(exec, codes_of(problem), {problem.inputs.codes, problem.inputs},
                            {problem.weights.codes, problem.weights}, epilogue);
  }
};

/// The programs that CUDA devices have for products of scaled codes.
template <class Architectures, class Inputs, class Weights, class Output, class Map>
struct models_for<basic_cuda<Architectures>, scaled_linear_problem<Inputs, Weights, Output, Map>> {
  /// The list of models.
  using type = model_list<gemm_scaled_groups_model, gemm_scaled_ring_model>;
};

}  // namespace v0
}  // namespace tessera
