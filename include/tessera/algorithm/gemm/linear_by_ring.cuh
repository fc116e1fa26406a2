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

/// gemm_ring for products of whole matrices. Operands: as gemm_ring has them.
template <class Operands, class Epilogue, Tuning Chosen = gemm_ring_tuning>
using whole_ring = gemm_ring<Operands, dense_schedule, Epilogue, policy_of<Chosen>(800)>;

/// Why gemm_ring does not take a product's inputs and extents, or none. Ring: a whole_ring with the smallest tiles.
template <class Ring, class Problem>
refusal refuses_ring_inputs(Problem const& problem) {
  constexpr std::int64_t most = 0x7fffffff - 512;  // coordinates and numbers of tiles are 32-bit
  using chunks = dense_chunks<typename Problem::operand_type>;
  std::int64_t const rows = problem.outputs.extent(0);
  std::int64_t const columns = problem.outputs.extent(1);
  std::int64_t const tiles =
      divide_up(rows, std::int64_t{Ring::rows}) * divide_up(columns, std::int64_t{Ring::columns});
  return first_of(
      unless(problem.inputs.extent(1) > 0, "inputs have no columns"),
      unless(rows < most && columns < most && problem.inputs.extent(1) < most && tiles < most / 4,
             "extents exceed 31 bits"),
      unless(chunks::suits(problem.inputs), "rows of inputs do not begin and end at multiples of 16 bytes"));
}

/// Enqueues a product by a whole_ring.
template <class Ring, class Exec, class Problem, class Epilogue>
void run_ring(Exec const& exec, Problem const& problem, typename Ring::a_type const& inputs,
              typename Ring::b_type const& weights, Epilogue const& epilogue) {
  constexpr std::int32_t band = 8;  // rows of tiles that are taken together
  auto const tiles_of = [](std::int64_t extent, int size) {
    return static_cast<std::int32_t>(divide_up(extent, std::int64_t{size}));
  };
  dense_schedule const schedule{
      {tiles_of(problem.outputs.extent(0), Ring::rows), tiles_of(problem.outputs.extent(1), Ring::columns), band},
      tiles_of(inputs.matrix.extent(1), Ring::depth)};
  Ring const whole{inputs, weights, schedule, epilogue};
  exec.run(whole,
           min(schedule.order.count(), std::int64_t{exec.state->multiprocessors()} * Ring::blocks_per_multiprocessor));
}

}  // namespace detail

/// gemm_ring: sm_80 and later, rows that begin and end at multiples of 16 bytes.
struct gemm_ring_model {
  static constexpr char const* name = "gemm_ring (cp.async, mma.sync)";

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    return unless(!std::is_same_v<typename Problem::operand, float>, "mma.sync does not multiply fp32, only tf32");
  }
  template <class Architectures, class Operand, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const& exec, linear_problem<Operand, Output, Map> const& problem) {
    using chunks = dense_chunks<typename gemm_operand<Operand>::value_type>;
    using directly = detail::whole_ring<Operand, store_sums_directly<Output, Map>>;
    return first_of(
        exec.template lacks<directly>(), detail::refuses_ring_inputs<directly>(problem),
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
  /// Enqueues the product by the policy that costs least, of those for which the device has the shared memory.
  template <class Exec, class Problem, class Epilogue>
  static void run_by_rows(Exec const& exec, Problem const& problem, Epilogue const& epilogue) {
    using operand = typename Problem::operand;
    if constexpr (is_16_bit_float<operand>) {
      using tall = detail::whole_ring<operand, Epilogue, tall_gemm_ring_tuning>;
      using wide = detail::whole_ring<operand, Epilogue, wide_gemm_ring_tuning>;
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
    using ring = detail::whole_ring<typename Problem::operand, Epilogue, Chosen>;
    detail::run_ring<ring>(exec, problem, {problem.inputs}, {problem.weights}, epilogue);
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
    return first_of(exec.template lacks<directly>(), detail::refuses_ring_inputs<directly>(problem));
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
