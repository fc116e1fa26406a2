// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Linear layers by gemm_ring on CUDA devices, from sm_80 on: with weights in memory, and with weights from any
/// TileSource, of which the lanes that multiply make stages.
///
/// linear.cuh includes this header and says which program runs.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/gemm/linear_problems.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/program/gemm/gemm_ring.cuh>
#include <tessera/program/gemm/store_sums.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Why a program takes an operand of a linear_problem neither as it lies nor, where that may be, across the depth; or
/// none. `takes` says whether it loads rows of a matrix.
template <class Problem, class Takes>
refusal refuses_operand(matrix_view<typename Problem::operand_type const> operand, Takes const& takes,
                        char const* unaligned, char const* across) {
  bool const is_across = !takes(operand) && takes(operand.transposed());
  constexpr bool is_wide = sizeof(typename Problem::operand_type) == 2;
  return first_of(unless(is_wide || !is_across, across),
                  unless(takes(operand) || (Problem::may_lie_across && is_across), unaligned));
}

/// Why no program is compiled for operands of which these lie across the depth, or none.
template <class Problem>
refusal refuses_orders(bool inputs_are_across, bool weights_are_across) {
  return unless(Problem::may_lie(inputs_are_across, weights_are_across),
                "the map of sums says that operands do not lie so (concepts/sum_map.hpp)");
}

/// Calls use(std::type_identity<Operands>{}) with what names the operands of a linear_problem that lie across the depth
/// or along it: ordered_operands, or the operand alone where both lie along it.
template <class Problem, class Use>
void with_ordered_operands(bool inputs_are_across, bool weights_are_across, Use const& use) {
  using operand = typename Problem::operand;
  constexpr operand_order along = operand_order::along_depth;
  constexpr operand_order across = operand_order::across_depth;
  if constexpr (Problem::may_lie(true, true)) {
    if (inputs_are_across && weights_are_across) {
      return use(std::type_identity<ordered_operands<operand, across, across>>{});
    }
  }
  if constexpr (Problem::may_lie(true, false)) {
    if (inputs_are_across && !weights_are_across) {
      return use(std::type_identity<ordered_operands<operand, across, along>>{});
    }
  }
  if constexpr (Problem::may_lie(false, true)) {
    if (weights_are_across && !inputs_are_across) {
      return use(std::type_identity<ordered_operands<operand, along, across>>{});
    }
  }
  use(std::type_identity<operand>{});
}

/// An operand as a program has it that takes it in this order: with rows that are next to each other in memory.
template <operand_order Order, class T>
matrix_view<T const> in_order(matrix_view<T const> operand) {
  return Order == operand_order::along_depth ? operand : operand.transposed();
}

/// gemm_ring for products of whole matrices. Operands: as gemm_ring has them.
template <class Operands, class Epilogue, Tuning Chosen = gemm_ring_tuning>
using whole_ring = gemm_ring<Operands, dense_schedule, Epilogue, policy_of<Chosen>(800)>;

/// Why gemm_ring does not take a product's extents, or none. Ring: a whole_ring with the smallest tiles.
template <class Ring, class Problem>
refusal refuses_ring_extents(Problem const& problem) {
  constexpr std::int64_t most = 0x7fffffff - 512;  // coordinates and numbers of tiles are 32-bit
  std::int64_t const rows = problem.outputs.extent(0);
  std::int64_t const columns = problem.outputs.extent(1);
  std::int64_t const tiles =
      divide_up(rows, std::int64_t{Ring::rows}) * divide_up(columns, std::int64_t{Ring::columns});
  return first_of(unless(problem.inputs.extent(1) > 0, "inputs have no columns"),
                  unless(rows < most && columns < most && problem.inputs.extent(1) < most && tiles < most / 4,
                         "extents exceed 31 bits"));
}

/// What gemm_ring says of inputs.
inline constexpr char const* ring_inputs_are_unaligned = "rows of inputs do not begin and end at multiples of 16 bytes";

/// Enqueues a product by a whole_ring. Operands are as Ring has them.
template <class Ring, class Exec, class Problem, class Epilogue>
void run_ring(Exec const& exec, Problem const& problem, typename Ring::a_type const& inputs,
              typename Ring::b_type const& weights, Epilogue const& epilogue) {
  constexpr std::int32_t band = 8;  // rows of tiles that are taken together
  auto const tiles_of = [](std::int64_t extent, int size) {
    return static_cast<std::int32_t>(divide_up(extent, std::int64_t{size}));
  };
  dense_schedule const schedule{
      {tiles_of(problem.outputs.extent(0), Ring::rows), tiles_of(problem.outputs.extent(1), Ring::columns), band},
      tiles_of(problem.inputs.extent(1), Ring::depth)};
  Ring const whole{inputs, weights, schedule, epilogue};
  exec.run(whole,
           min(schedule.order.count(), std::int64_t{exec.state->multiprocessors()} * Ring::blocks_per_multiprocessor));
}

}  // namespace detail

/// gemm_ring: sm_80 and later, rows that begin and end at multiples of 16 bytes: of operands, or where elements have 2
/// bytes of their transposes.
struct gemm_ring_model {
  static constexpr char const* name = "gemm_ring (cp.async, mma.sync)";

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    return unless(!std::is_same_v<typename Problem::operand, float>, "mma.sync does not multiply fp32, only tf32");
  }
  template <class Architectures, class Operand, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const& exec, linear_problem<Operand, Output, Map> const& problem) {
    using asked = linear_problem<Operand, Output, Map>;
    using directly = detail::whole_ring<Operand, store_sums_directly<Output, Map>>;
    return first_of(
        exec.template lacks<directly>(), detail::refuses_ring_extents<directly>(problem),
        detail::refuses_operand<asked>(problem.inputs, takes<asked>, detail::ring_inputs_are_unaligned,
                                       "inputs lie across the depth, and ldmatrix turns only elements of 2 bytes"),
        detail::refuses_operand<asked>(problem.weights, takes<asked>,
                                       "rows of weights do not begin and end at multiples of 16 bytes",
                                       "weights lie across the depth, and ldmatrix turns only elements of 2 bytes"),
        detail::refuses_orders<asked>(!takes<asked>(problem.inputs), !takes<asked>(problem.weights)));
  }
  template <class Architectures, class Operand, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec, linear_problem<Operand, Output, Map> const& problem) {
    using asked = linear_problem<Operand, Output, Map>;
    detail::with_ordered_operands<asked>(
        !takes<asked>(problem.inputs), !takes<asked>(problem.weights),
        [&](auto named) { run_in_order<typename decltype(named)::type>(exec, problem); });
  }

 private:
  /// Whether rows of a matrix of a Problem's operands are copied.
  template <class Problem>
  static bool takes(matrix_view<typename Problem::operand_type const> matrix) {
    return dense_chunks<typename Problem::operand_type>::suits(matrix);
  }
  /// Enqueues the product of operands that Operands names.
  template <class Operands, class Architectures, class Operand, class Output, class Map>
  static void run_in_order(basic_cuda<Architectures> const& exec, linear_problem<Operand, Output, Map> const& problem) {
    if constexpr (is_16_bit_float<Output>) {
      if (dense_chunks<Output>::suits(problem.outputs)) {
        return run_by_rows<Operands>(exec, problem, store_sums_by_rows<Output, Map>{{problem.outputs}, problem.map});
      }
    }
    using directly = store_sums_directly<Output, Map>;
    run_with<detail::whole_ring<Operands, directly>>(exec, problem, directly{problem.outputs, problem.map});
  }
  /// Enqueues the product by the policy that costs least, of those for which the device has the shared memory. With an
  /// operand across the depth there is none of 192 x 256, of which a warp has 96 rows: on an H200 sm_80's code has 0.97
  /// of the speed along it for 8192^3 with weights across the depth, 0.96 with both, and 0.93 with inputs.
  template <class Operands, class Exec, class Problem, class Epilogue>
  static void run_by_rows(Exec const& exec, Problem const& problem, Epilogue const& epilogue) {
    if constexpr (is_16_bit_float<typename Problem::operand>) {
      using wide = detail::whole_ring<Operands, Epilogue, wide_gemm_ring_tuning>;
      auto const cost = [&](gemm_ring_policy policy) {
        return gemm_ring_cost(policy, problem.outputs.extent(0), problem.outputs.extent(1),
                              exec.state->multiprocessors());
      };
      std::int64_t const of_wide = cost(policy_of<wide_gemm_ring_tuning>(800));
      std::int64_t const of_others = cost(policy_of<gemm_ring_tuning>(800));
      if constexpr (std::is_same_v<Operands, typename Problem::operand>) {
        using tall = detail::whole_ring<Operands, Epilogue, tall_gemm_ring_tuning>;
        if (cost(policy_of<tall_gemm_ring_tuning>(800)) < min(of_wide, of_others) && !exec.template lacks<tall>()) {
          return run_with<tall>(exec, problem, epilogue);
        }
      }
      if (of_wide < of_others && !exec.template lacks<wide>()) {
        return run_with<wide>(exec, problem, epilogue);
      }
    }
    run_with<detail::whole_ring<Operands, Epilogue>>(exec, problem, epilogue);
  }
  template <class Ring, class Exec, class Problem, class Epilogue>
  static void run_with(Exec const& exec, Problem const& problem, Epilogue const& epilogue) {
    detail::run_ring<Ring>(exec, problem, {detail::in_order<Ring::orders::a>(problem.inputs)},
                           {detail::in_order<Ring::orders::b>(problem.weights)}, epilogue);
  }
};

/// gemm_ring with weights from any TileSource: sm_80 and later, inputs whose rows begin and end at multiples of 16
/// bytes.
struct gemm_ring_from_source_model {
  static constexpr char const* name = "gemm_ring from a source (cp.async, mma.sync)";

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    return gemm_ring_model::refuses_types<Exec, Problem>();
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const& exec,
                         source_linear_problem<Operand, Weights, Output, Map> const& problem) {
    using directly = detail::whole_ring<operand_from_source<Operand, Weights>, store_sums_directly<Output, Map>>;
    using chunks = dense_chunks<typename gemm_operand<Operand>::value_type>;
    return first_of(exec.template lacks<directly>(), detail::refuses_ring_extents<directly>(problem),
                    unless(chunks::suits(problem.inputs), detail::ring_inputs_are_unaligned));
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec,
                  source_linear_problem<Operand, Weights, Output, Map> const& problem) {
    using operands = operand_from_source<Operand, Weights>;
    if constexpr (is_16_bit_float<Output>) {
      if (dense_chunks<Output>::suits(problem.outputs)) {
        using by_rows = store_sums_by_rows<Output, Map>;
        using tall = detail::whole_ring<operands, by_rows, source_gemm_ring_tuning>;
        by_rows const epilogue{{problem.outputs}, problem.map};
        auto const cost = [&](gemm_ring_policy policy) {
          return gemm_ring_cost(policy, problem.outputs.extent(0), problem.outputs.extent(1),
                                exec.state->multiprocessors());
        };
        if (cost(policy_of<source_gemm_ring_tuning>(800)) < cost(policy_of<gemm_ring_tuning>(800)) &&
            !exec.template lacks<tall>()) {
          detail::run_ring<tall>(exec, problem, {problem.inputs}, problem.weights, epilogue);
        } else {
          detail::run_ring<detail::whole_ring<operands, by_rows>>(exec, problem, {problem.inputs}, problem.weights,
                                                                  epilogue);
        }
        return;
      }
    }
    using directly = store_sums_directly<Output, Map>;
    detail::run_ring<detail::whole_ring<operands, directly>>(exec, problem, {problem.inputs}, problem.weights,
                                                             directly{problem.outputs, problem.map});
  }
};

}  // namespace v0
}  // namespace tessera
