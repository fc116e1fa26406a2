// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs that `linear` has on CUDA devices for up to 16 tokens and weights that are codes, which are multiplied
/// where they were read: gemm_few_rows_boxes, on sm_90, for exact codes with scales of groups and for those of a
/// coded_matrix; gemm_few_rows_scaled and gemm_few_rows_coded for the same elsewhere; gemm_few_rows for all that come
/// in chunks. They read the weights once and need no workspace; linear.cuh takes the first that a call fits.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/gemm/linear_problems.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/cuda_launch.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/gemm/detail/boxes_of_coded.cuh>
#include <tessera/program/gemm/detail/boxes_of_scaled.cuh>
#include <tessera/program/gemm/gemm_few_rows.cuh>
#include <tessera/program/gemm/gemm_few_rows_boxes.cuh>
#include <tessera/program/gemm/gemm_few_rows_coded.cuh>
#include <tessera/program/gemm/gemm_few_rows_scaled.cuh>
#include <tessera/program/gemm/store_sums.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/tile/source/chunked_source.hpp>
#include <tessera/tile/source/coded_weights.hpp>
#include <tessera/tile/source/scaled_source.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// Whether a source of weights comes in chunks that gemm_few_rows can multiply where they were read.
template <class Weights, class Value>
inline constexpr bool has_operand_chunks = false;
template <class Weights, class Value>
requires requires {
  Weights::code_chunk::size;
}
inline constexpr bool has_operand_chunks<Weights, Value> =
    is_16_bit_float<Value> &&
    ChunkedSource<Weights, cuda_warp, typename operand_from<Weights, 16, 4 * Weights::code_chunk::size>::type>;

/// Enqueues gemm_few_rows with the policy of `Chosen`. Problem: a source_linear_problem.
template <Tuning Chosen, class Architectures, class Operand, class Weights, class Output, class Map>
void run_few_rows(basic_cuda<Architectures> const& exec,
                  source_linear_problem<Operand, Weights, Output, Map> const& problem) {
  using program = gemm_few_rows<Operand, Weights, store_sums<Output, Map>, policy_of<Chosen>(800)>;
  program const whole{problem.inputs, problem.weights, {problem.outputs, problem.map}};
  exec.run(whole, whole.blocks());
}

/// Whether a source of weights has exact codes and scales that gemm_few_rows_scaled can multiply.
template <class Weights, class Value>
inline constexpr bool has_operand_codes = false;
template <OperandCodes Weights, class Value>
inline constexpr bool has_operand_codes<Weights, Value> =
    is_16_bit_float<Value>&& std::is_same_v<typename Weights::value_type, Value>&& lane_bytes_of<Weights>() != 0;

/// Enqueues `Narrow` where its thread blocks are no more than multiprocessors, and these have the shared memory for it;
/// otherwise `Wide`.
template <class Narrow, class Wide, class Architectures, class Problem>
void run_narrow_or_wide(basic_cuda<Architectures> const& exec, Problem const& problem) {
  Narrow const narrow{problem.inputs, problem.weights, {problem.outputs, problem.map}};
  if (narrow.blocks() <= exec.state->multiprocessors() &&
      launch_shape<Narrow>::shared_bytes <= exec.state->shared_bytes()) {
    exec.run(narrow, narrow.blocks());
  } else {
    Wide const wide{problem.inputs, problem.weights, {problem.outputs, problem.map}};
    exec.run(wide, wide.blocks());
  }
}

/// Why programs for few rows do not take a problem, or none. `of_depth`: what the program has against its depth.
template <class Operand, class Weights, class Output, class Map>
refusal refuses_few_rows(source_linear_problem<Operand, Weights, Output, Map> const& problem, int most_tokens,
                         refusal const& of_depth) {
  constexpr std::int64_t most = 0x7fffffff - 65536;  // steps are counted in 32 bits
  return first_of(
      unless(problem.inputs.extent(0) <= most_tokens, "the number of tokens", problem.inputs.extent(0), "16 at most"),
      of_depth, unless(problem.inputs.extent(1) < most, "extents exceed 31 bits"),
      unless(row_chunks<typename gemm_operand<Operand>::value_type const>{problem.inputs}.is_aligned(),
             "rows of inputs do not begin at multiples of 16 bytes"),
      unless(problem.weights.has_whole_chunks(), "rows of weights are not whole chunks of 16 bytes"));
}

/// How gemm_few_rows_boxes takes weights: not at all.
template <class Weights, class Operand>
struct boxes_of {
  static constexpr bool exist = false;
};
/// Those of a coded_matrix.
template <>
struct boxes_of<coded_weights, bfloat16> {
  static constexpr bool exist = true;
  static constexpr int group = 128;  ///< rows of weights are multiples of so many columns
  template <int Rows, int Tokens>
  using type = boxes_of_coded<Rows, Tokens>;
  using wide = coded_boxes_tuning;
  using narrow = narrow_coded_boxes_tuning;
  using fewest = fewest_coded_boxes_tuning;
  using narrow_fewest = narrow_fewest_coded_boxes_tuning;
  /// What comes in boxes.
  static matrix_view<std::uint8_t const> matrix(coded_weights const& weights) {
    return {weights.residuals, {weights.rows(), weights.columns()}};
  }
};
/// Whether weights are exact codes with scales of groups of 128 columns, or multiples of these.
template <class Weights, class Operand>
inline constexpr bool has_boxed_codes = false;
template <OperandCodes Weights, class Operand>
inline constexpr bool has_boxed_codes<Weights, Operand> =
    has_operand_codes<Weights, typename gemm_operand<Operand>::value_type>&& Weights::group % 128 == 0;
template <class Weights, class Operand>
requires has_boxed_codes<Weights, Operand>
struct boxes_of<Weights, Operand> {
  static constexpr bool exist = true;
  static constexpr int group = Weights::group;  ///< rows of weights are multiples of so many columns
  template <int Rows, int Tokens>
  using type = boxes_of_scaled<Operand, Weights, Rows, Tokens>;
  using wide = scaled_boxes_tuning;
  using narrow = narrow_scaled_boxes_tuning;
  using fewest = fewest_scaled_boxes_tuning;
  using narrow_fewest = narrow_fewest_scaled_boxes_tuning;
  /// What comes in boxes.
  static matrix_view<std::uint8_t const> matrix(Weights const& weights) {
    std::uint8_t const* const codes = weights.code_bytes(0, 0);
    return {codes, {weights.rows(), weights.columns() * Weights::code_bits / 8}, {weights.code_bytes(1, 0) - codes, 1}};
  }
};

/// Enqueues gemm_few_rows_boxes with the policy of `Chosen`.
template <Tuning Chosen, class Architectures, class Operand, class Weights, class Output, class Map>
void run_boxes(basic_cuda<Architectures> const& exec,
               source_linear_problem<Operand, Weights, Output, Map> const& problem) {
  using boxes = boxes_of<Weights, Operand>;
  constexpr few_rows_boxes_policy policy = policy_of<Chosen>(900);
  using weights_type = typename boxes::template type<policy.rows, policy.tokens>;
  using program = gemm_few_rows_boxes<weights_type, store_sums<Output, Map>, policy>;
  char const* const where = source_linear_problem<Operand, Weights, Output, Map>::function;
  box_shape const box{policy.rows, weights_type::box_columns};
  program const whole{
      make_tensor_map(where, problem.inputs, {policy.tokens, program::input_columns}),
      problem.inputs,
      {make_tensor_map(where, boxes::matrix(problem.weights), box, weights_type::swizzle), problem.weights},
      {problem.outputs, problem.map}};
  exec.run(whole, whole.blocks());
}

}  // namespace detail

/// gemm_few_rows_boxes: sm_90, up to 16 tokens, weights of a coded_matrix or of exact codes with scales of groups.
struct gemm_few_rows_boxes_model {
  static constexpr char const* name = "gemm_few_rows_boxes (TMA, mma.sync)";

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    return first_of(unless(Exec::template is_compiled_for<900>, "this source is not compiled for sm_90a"),
                    unless(detail::boxes_of<decltype(Problem::weights), typename Problem::operand>::exist,
                           "the weights' source has no exact codes with scales of groups of 128 columns"));
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const& exec,
                         source_linear_problem<Operand, Weights, Output, Map> const& problem) {
    using boxes = detail::boxes_of<Weights, Operand>;
    constexpr few_rows_boxes_policy narrow = policy_of<typename boxes::narrow>(900);
    using weights_type = typename boxes::template type<narrow.rows, narrow.tokens>;
    using program = gemm_few_rows_boxes<weights_type, store_sums<Output, Map>, narrow>;
    std::int64_t const depth = problem.inputs.extent(1);
    refusal const of_weights =
        first_of(unless(depth > 0 && depth % boxes::group == 0, "rows of weights are not whole groups of columns"),
                 unless(problem.weights.rows() >= narrow.rows, "the number of rows of weights", problem.weights.rows(),
                        "32 at least"));
    return first_of(detail::refuses_few_rows(problem, narrow.tokens, of_weights),
                    unless(can_map(problem.inputs), "TMA cannot load the inputs"),
                    unless(can_map(boxes::matrix(problem.weights)), "TMA cannot load the weights"),
                    exec.template lacks<program>());
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec,
                  source_linear_problem<Operand, Weights, Output, Map> const& problem) {
    using boxes = detail::boxes_of<Weights, Operand>;
    constexpr few_rows_boxes_policy fewest = policy_of<typename boxes::narrow_fewest>(900);
    std::int64_t const rows = problem.weights.rows();
    bool const is_narrow = rows < policy_of<typename boxes::wide>(900).rows ||
                           divide_up(rows, std::int64_t{fewest.rows}) <= exec.state->multiprocessors();
    if (problem.inputs.extent(0) <= fewest.tokens) {
      is_narrow ? detail::run_boxes<typename boxes::narrow_fewest>(exec, problem)
                : detail::run_boxes<typename boxes::fewest>(exec, problem);
    } else {
      is_narrow ? detail::run_boxes<typename boxes::narrow>(exec, problem)
                : detail::run_boxes<typename boxes::wide>(exec, problem);
    }
  }
};

/// gemm_few_rows_scaled: sm_80 and later, up to 16 tokens, weights of exact codes with scales of groups.
struct gemm_few_rows_scaled_model {
  static constexpr char const* name = "gemm_few_rows_scaled (mma.sync)";
  /// The policy for the most tokens.
  static constexpr few_rows_policy policy = policy_of<scaled_few_rows_tuning>(800);

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    using value = typename Problem::operand_type;
    return first_of(unless(is_16_bit_float<typename Problem::operand>, "operands are no 16-bit floats"),
                    unless(detail::has_operand_codes<decltype(Problem::weights), value>,
                           "the weights' source has no exact codes with scales of groups"));
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const&,
                         source_linear_problem<Operand, Weights, Output, Map> const& problem) {
    std::int64_t const depth = problem.inputs.extent(1);
    return detail::refuses_few_rows(
        problem, policy.tokens,
        first_of(unless(depth > 0 && depth % Weights::group == 0, "rows of weights are not whole groups"),
                 unless(problem.weights.rows() >= policy.rows, "the number of rows of weights", problem.weights.rows(),
                        "32 at least")));
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec,
                  source_linear_problem<Operand, Weights, Output, Map> const& problem) {
    using epilogue = store_sums<Output, Map>;
    using fewest = gemm_few_rows_scaled<Operand, Weights, epilogue, policy_of<scaled_fewest_rows_tuning>(800)>;
    using narrow = gemm_few_rows_scaled<Operand, Weights, epilogue, policy_of<narrow_scaled_few_rows_tuning>(800)>;
    using wide = gemm_few_rows_scaled<Operand, Weights, epilogue, policy>;
    if (problem.inputs.extent(0) <= fewest::tokens) {
      detail::run_narrow_or_wide<fewest, fewest>(exec, problem);
    } else {
      detail::run_narrow_or_wide<narrow, wide>(exec, problem);
    }
  }
};

/// gemm_few_rows_coded: sm_80 and later, up to 16 tokens, weights of a coded_matrix.
struct gemm_few_rows_coded_model {
  static constexpr char const* name = "gemm_few_rows_coded (mma.sync)";
  /// The policy for the most tokens.
  static constexpr few_rows_policy policy = policy_of<coded_few_rows_tuning>(800);
  static constexpr std::int64_t columns = 128;  ///< rows of weights are multiples of so many

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    return {};  // only lists for coded matrices have it
  }
  template <class Architectures, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const&,
                         source_linear_problem<bfloat16, coded_weights, Output, Map> const& problem) {
    std::int64_t const depth = problem.inputs.extent(1);
    return detail::refuses_few_rows(
        problem, policy.tokens,
        first_of(unless(depth > 0 && depth % columns == 0, "the depth", depth, "a multiple of 128"),
                 unless(problem.weights.rows() >= policy.rows, "the number of rows of weights", problem.weights.rows(),
                        "32 at least")));
  }
  template <class Architectures, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec,
                  source_linear_problem<bfloat16, coded_weights, Output, Map> const& problem) {
    using epilogue = store_sums<Output, Map>;
    using fewest = gemm_few_rows_coded<epilogue, policy_of<coded_fewest_rows_tuning>(800)>;
    using narrow_fewest = gemm_few_rows_coded<epilogue, policy_of<narrow_coded_fewest_rows_tuning>(800)>;
    using narrow = gemm_few_rows_coded<epilogue, policy_of<narrow_coded_few_rows_tuning>(800)>;
    using wide = gemm_few_rows_coded<epilogue, policy>;
    if (problem.inputs.extent(0) <= fewest::tokens) {
      detail::run_narrow_or_wide<narrow_fewest, fewest>(exec, problem);
    } else {
      detail::run_narrow_or_wide<narrow, wide>(exec, problem);
    }
  }
};

/// gemm_few_rows: sm_80 and later, up to 16 tokens, weights in whole chunks of codes.
struct gemm_few_rows_model {
  static constexpr char const* name = "gemm_few_rows (mma.sync)";
  /// The policy for the most tokens.
  static constexpr few_rows_policy policy = policy_of<few_rows_tuning>(800);

  template <Executor Exec, class Problem>
  static constexpr refusal refuses_types() {
    using value = typename Problem::operand_type;
    return first_of(unless(is_16_bit_float<typename Problem::operand>, "operands are no 16-bit floats"),
                    unless(detail::has_operand_chunks<decltype(Problem::weights), value>,
                           "the weights' source has no chunks of codes"));
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static refusal refuses(basic_cuda<Architectures> const&,
                         source_linear_problem<Operand, Weights, Output, Map> const& problem) {
    return detail::refuses_few_rows(problem, policy.tokens,
                                    unless(problem.inputs.extent(1) > 0, "inputs have no columns"));
  }
  template <class Architectures, class Operand, class Weights, class Output, class Map>
  static void run(basic_cuda<Architectures> const& exec,
                  source_linear_problem<Operand, Weights, Output, Map> const& problem) {
    if (problem.inputs.extent(0) <= policy_of<fewest_rows_tuning>(800).tokens) {
      detail::run_few_rows<fewest_rows_tuning>(exec, problem);
    } else {
      detail::run_few_rows<few_rows_tuning>(exec, problem);
    }
  }
};

}  // namespace v0
}  // namespace tessera
