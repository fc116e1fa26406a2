// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A matrix as the codes of any Quantizer: quantize() makes them, dequantize() gives values back, and `dequantized`
/// (tile/source/dequantized.hpp) lets products take them as they are.
///
///     using four = quantized_matrix<two_to_a_byte<symmetric_quantizer<4, 64>>>;    // 64 columns share a scale
///     buffer<int4x2> codes(exec, rows * four::code_columns(columns));
///     buffer<symmetric_params> scales(exec, rows * four::groups(columns));
///     matrix_view<int4x2> const codes_view(codes.data(), {rows, four::code_columns(columns)});
///     matrix_view<symmetric_params> const scales_view(scales.data(), {rows, four::groups(columns)});
///     four::quantize(exec, {}, weights, codes_view, scales_view);
///     dequantized<four::quantizer_type, bfloat16> const source{{}, codes_view, scales_view};
///     linear<bfloat16>::forward(exec, inputs, source, outputs);
///
/// Groups are neighbouring columns of a row, and the last group of a row may be shorter. A quantizer for whole tensors
/// has one set of parameters, and needs a workspace for the ranges of rows.
///
/// Codes and parameters are those of the Quantizer's own fit() and encode(), on every executor. Values are read once
/// for groups of 16, 32, 64, ... to 2048 columns (twice as many where codes are packed), and twice for others.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/gemm/detail/row_encoder.hpp>
#include <tessera/program/gemm/encode_chunks.hpp>
#include <tessera/program/gemm/fit_groups.hpp>
#include <tessera/program/gemm/quantize_groups.hpp>
#include <tessera/program/gemm/reduce_rows.hpp>
#include <tessera/program/gemm/store_source.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

template <Quantizer Q>
struct quantized_matrix {
  using quantizer_type = Q;                     ///< what makes the codes
  using params_type = typename Q::params_type;  ///< what a group of values shares
  /// Whether an element of the codes holds two of them.
  static constexpr bool is_packed = std::is_same_v<stored_code<Q>, int4x2>;

  /// Elements of a row of codes. Packed codes need an even number of columns.
  [[nodiscard]] static constexpr std::int64_t code_columns(std::int64_t columns) {
    return is_packed ? columns / 2 : columns;
  }
  /// Groups of a row; 1 for a quantizer for whole tensors, which has one set of parameters for all rows.
  [[nodiscard]] static constexpr std::int64_t groups(std::int64_t columns) {
    return is_whole ? 1 : divide_up(columns, std::int64_t{Q::group});
  }

  /// Plans the workspace of quantize(): none, but for a quantizer for whole tensors.
  template <Executor Exec>
  [[nodiscard]] static workspace_plan plan(Exec const&, std::int64_t rows, std::int64_t columns) {
    check<shape_error>(rows >= 0 && columns >= 0, where, ": the extents are ", rows, " and ", columns,
                       " but must not be negative");
    workspace_plan planned(where);
    add_ranges(planned, rows, columns);
    return planned;
  }

  /// Enqueues the codes and the parameters of values, which in braces without a type are bfloat16. `params` is
  /// rows x groups, or 1 x 1 for a quantizer for whole tensors. Throws shape_error for extents that do not fit together
  /// or too small a workspace. The call neither waits nor allocates.
  template <Executor Exec, class T = bfloat16 const>
  requires(Scalar<std::remove_const_t<T>>) static void quantize(Exec const& exec, Q const& quantizer,
                                                                matrix_view<T> values,
                                                                matrix_view<stored_code<Q>> codes,
                                                                matrix_view<params_type> params,
                                                                workspace const& space) {
    using scalar = std::remove_const_t<T>;
    check_extents(where, values, codes, params);
    check_apart(where, "codes", codes);
    check_apart(where, "parameters", params);
    check_reach(exec, where, "values", values, "codes", codes, "parameters", params);
    row_encoder<Q, scalar> const encoder{quantizer, values, codes};
    if constexpr (std::is_empty_v<params_type>) {
      run(exec, encode_chunks<Q, scalar>{encoder, {}});
    } else if constexpr (is_whole) {
      workspace_plan planned(where, workspace_plan::record::sizes);
      auto const ranges = add_ranges(planned, values.extent(0), values.extent(1));
      space.check_room(where, planned.bytes(), values.extent(0), " rows of ", values.extent(1), " columns");
      check_reach(exec, where, "bytes of the workspace", space);
      run(exec, reduce_rows<range_reducer_t<Q>, scalar, keep_pieces<range_state_t<Q>>>{
                    quantizer.range(), values, {space[ranges], row_pieces(values.extent(1))}});
      run(exec, fit_tensor<Q>{quantizer, space[ranges], params});
      run(exec, encode_chunks<Q, scalar>{encoder, params});
    } else if constexpr (quantize_groups<Q, scalar>::shares || Q::group <= columns_of_a_lane) {
      run(exec, quantize_groups<Q, scalar>{encoder, params});
    } else {
      run(exec, fit_groups<Q, scalar>{quantizer, values, params});
      run(exec, encode_chunks<Q, scalar>{encoder, params});
    }
  }
  /// The same for a quantizer of groups, which needs no workspace.
  template <Executor Exec, class T = bfloat16 const>
  requires(Scalar<std::remove_const_t<T>>&& Q::group !=
           whole_tensor) static void quantize(Exec const& exec, Q const& quantizer, matrix_view<T> values,
                                              matrix_view<stored_code<Q>> codes, matrix_view<params_type> params) {
    quantize(exec, quantizer, values, codes, params,
             workspace(workspace_plan(where, workspace_plan::record::sizes), {}));
  }

  /// Enqueues the values of codes, rounded to T, in braces without a type to bfloat16. Throws shape_error
  /// for extents that do not fit together. The call neither waits nor allocates.
  template <Executor Exec, Scalar T = bfloat16>
  static void dequantize(Exec const& exec, Q const& quantizer, matrix_view<stored_code<Q> const> codes,
                         matrix_view<params_type const> params, matrix_view<T> values) {
    constexpr char const* function = "quantized_matrix.dequantize";
    check_extents(function, values, codes, params);
    check_apart(function, "values", values);
    check_reach(exec, function, "codes", codes, "parameters", params, "values", values);
    run(exec, store_source<dequantized<Q, T>>{{quantizer, codes, params}, values});
  }

 private:
  static constexpr char const* where = "quantized_matrix.quantize";
  static constexpr bool is_whole = Q::group == whole_tensor;
  static constexpr bool has_ranges = is_whole && !std::is_empty_v<params_type>;
  static constexpr int columns_of_a_lane = 256;  ///< columns of the largest group that a lane fits alone

  static region<range_state_t<Q>> add_ranges(workspace_plan& planned, std::int64_t rows, std::int64_t columns) {
    return planned.add<range_state_t<Q>>("ranges of rows",
                                         has_ranges ? checked_multiply(where, rows, row_pieces(columns)) : 0);
  }

  template <class Values, class Codes, class Params>
  static void check_extents(char const* function, Values const& values, Codes const& codes, Params const& params) {
    std::int64_t const rows = values.extent(0);
    std::int64_t const columns = values.extent(1);
    check<shape_error>(!is_packed || columns % 2 == 0, function, ": rows have ", columns,
                       " columns but must have an even number for codes that are two to a byte");
    check<shape_error>(codes.extent(0) == rows && codes.extent(1) == code_columns(columns), function,
                       ": the codes are ", codes.extent(0), " x ", codes.extent(1), " but must be ", rows, " x ",
                       code_columns(columns));
    std::int64_t const params_rows = is_whole ? 1 : rows;
    bool const has_none = std::is_empty_v<params_type> && params.size() == 0;
    check<shape_error>(has_none || (params.extent(0) == params_rows && params.extent(1) == groups(columns)), function,
                       ": the parameters are ", params.extent(0), " x ", params.extent(1), " but must be ", params_rows,
                       " x ", groups(columns));
    check_memory(function, "values", values);
    check_memory(function, "codes", codes);
    check_memory(function, "parameters", params);
  }
};

}  // namespace v0
}  // namespace tessera
