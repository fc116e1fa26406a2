// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `add_matrix`: the map of sums (concepts/sum_map.hpp) that adds the element of a matrix, such as a residual.
///
///     linear<bfloat16>::forward(exec, inputs, weights, add_matrix<bfloat16>{residual}, outputs);
#pragma once

#include <cstdint>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Adds the element of a matrix. The matrix may be that of the outputs: then the product is accumulated.
template <class Element>
struct add_matrix {
  matrix_view<Element const> matrix;  ///< rows x columns

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("elements to be added", matrix);
  }
  /// Throws shape_error where the matrix is not as large as the outputs, value_error where it has no memory; both name
  /// `function`. Products ask every map that has such a function.
  void check_sums(char const* function, std::int64_t rows, std::int64_t columns) const {
    check<shape_error>(matrix.extent(0) == rows && matrix.extent(1) == columns, function,
                       ": the matrix to be added is ", matrix.extent(0), " x ", matrix.extent(1),
                       " but the outputs are ", rows, " x ", columns);
    check_memory(function, "elements to be added", matrix);
  }
  template <class Sum>
  TESSERA_FN constexpr float operator()(Sum sum, std::int64_t row, std::int64_t column) const {
    return static_cast<float>(sum) + static_cast<float>(load(matrix(row, column)));
  }
};
static_assert(SumMap<add_matrix<float>>);

}  // namespace v0
}  // namespace tessera
