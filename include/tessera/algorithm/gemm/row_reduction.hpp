// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Rows of a matrix in memory reduced by any Reducer: log-sum-exps of logits, largest entries, ranges for a Quantizer.
///
///     using largest = row_reduction<arg_max_reducer<float>>;               // greedy sampling
///     workspace_plan const plan = largest::plan(exec, logits.extent(0), logits.extent(1));
///     buffer<std::byte> memory(exec, plan.bytes());                        // 0 bytes for rows of up to 8192 columns
///     largest::reduce(exec, {}, logits, best.view(), workspace(plan, memory));   // best: an indexed_value a row
///     exec.wait();
///
/// The order in which states are merged depends on the extents alone, so that results are the same each time and on
/// every executor, as far as the Reducer's own arithmetic is. Each element is read once: on a GPU the memory's speed is
/// the bound, for rows of a few thousand columns or more. Shorter rows leave lanes of their warp idle.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/reducer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/gemm/reduce_rows.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/row_finish.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// R: a Reducer of float, or of indexed_value<float>, which is given values with their columns.
template <Reducer R>
requires(std::is_same_v<typename R::input_type, indexed_value<float>> ||
         std::is_convertible_v<float, typename R::input_type>) struct row_reduction {
  using state_type = typename R::state_type;  ///< what becomes of a row

  /// Plans the workspace: a state for each 8192 columns, where rows have more of them.
  template <Executor Exec>
  [[nodiscard]] static workspace_plan plan(Exec const&, std::int64_t rows, std::int64_t columns) {
    check<shape_error>(rows >= 0 && columns >= 0, where, ": the extents are ", rows, " and ", columns,
                       " but must not be negative");
    workspace_plan planned(where);
    add_states(planned, rows, columns);
    return planned;
  }

  /// Enqueues finish(row, row, state) for each row. A row without columns has the Reducer's identity. Throws
  /// shape_error for too small a workspace. The call neither waits nor allocates.
  template <Executor Exec, class T, RowFinish<state_type> Finish>
  requires(Scalar<std::remove_const_t<T>>) static void reduce(Exec const& exec, R const& reducer, matrix_view<T> values,
                                                              Finish finish, workspace const& space) {
    using scalar = std::remove_const_t<T>;
    check_memory(where, "values", values);
    std::int64_t const rows = values.extent(0);
    std::int64_t const columns = values.extent(1);
    check<shape_error>(columns <= most_columns, where, ": rows have ", columns, " columns but may have ", most_columns);
    workspace_plan planned(where, workspace_plan::record::sizes);
    auto const states = add_states(planned, rows, columns);
    space.check_room(where, planned.bytes(), rows, " rows of ", columns, " columns");
    check_reach(exec, where, "values", values, "bytes of the workspace", space);
    check_finish(where, rows, finish);
    check_reach_of(exec, where, finish);
    if (rows == 0) {
      return;
    }
    if (row_pieces(columns) == 1) {
      run(exec, reduce_rows<R, scalar, finish_whole_rows<Finish>>{reducer, values, {finish}});
    } else {
      run(exec, reduce_rows<R, scalar, keep_pieces<state_type>>{reducer, values, {space[states], row_pieces(columns)}});
      run(exec, merge_row_pieces<R, Finish>{reducer, space[states], rows, finish});
    }
  }

  /// Enqueues the states of the rows. Throws shape_error where there is not a state for each row.
  template <Executor Exec, class T>
  requires(Scalar<std::remove_const_t<T>>) static void reduce(Exec const& exec, R const& reducer, matrix_view<T> values,
                                                              array_view<state_type> states, workspace const& space) {
    check<shape_error>(states.size() == values.extent(0), where, ": there are ", states.size(),
                       " states but the values have ", values.extent(0), " rows");
    reduce(exec, reducer, values, keep_states<state_type>{states}, space);
  }

 private:
  static constexpr char const* where = "row_reduction.reduce";
  static constexpr std::int64_t most_columns = INT32_MAX;  ///< columns have numbers of 32 bits

  static region<state_type> add_states(workspace_plan& planned, std::int64_t rows, std::int64_t columns) {
    std::int64_t const pieces = row_pieces(columns);
    return planned.add<state_type>("states of pieces of rows", pieces == 1 ? 0 : checked_multiply(where, rows, pieces));
  }
};

}  // namespace v0
}  // namespace tessera
