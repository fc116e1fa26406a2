// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Maps of sums: functions that a sum of a matrix product goes through in a register, before it is stored.
///
///     struct rectified {                                // a user's own: any trivially copyable function object
///       TESSERA_FN float operator()(float sum, std::int64_t, std::int64_t) const { return sum > 0 ? sum : 0; }
///     };
///     linear<bfloat16>::forward(exec, inputs, weights, chained<add_bias<float>, rectified>{{bias}, {}}, outputs);
///     linear<bfloat16>::forward(exec, inputs, weights, soft_capped{30.0F}, outputs);
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: the global names are those that nvcc has on both sides

#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Leaves sums as they are.
struct plain_sum {
  template <class Sum>
  TESSERA_FN constexpr Sum operator()(Sum sum, std::int64_t, std::int64_t) const {
    return sum;
  }
};

/// Adds a number to each column.
template <class Bias>
struct add_bias {
  array_view<Bias const> bias;  ///< the number of each column
  template <class Sum>
  TESSERA_FN constexpr float operator()(Sum sum, std::int64_t, std::int64_t column) const {
    return static_cast<float>(sum) + static_cast<float>(load(bias[column]));
  }
};

/// Adds the element of a matrix. The matrix may be that of the outputs: then the product is accumulated.
template <class Element>
struct add_matrix {
  matrix_view<Element const> matrix;  ///< rows x columns
  template <class Sum>
  TESSERA_FN constexpr float operator()(Sum sum, std::int64_t row, std::int64_t column) const {
    return static_cast<float>(sum) + static_cast<float>(load(matrix(row, column)));
  }
};

/// Bends sums so that they stay below `cap` in magnitude: cap * tanh(sum / cap).
struct soft_capped {
  float cap;  ///< the bound: sums stay between -cap and cap
  template <class Sum>
  TESSERA_FN float operator()(Sum sum, std::int64_t, std::int64_t) const {
    return cap * ::tanhf(static_cast<float>(sum) / cap);
  }
};

/// Applies one map after the other.
template <class First, class Second>
struct chained {
  First first;    ///< the map that sums go through first
  Second second;  ///< the map that the results of `first` go through
  template <class Sum>
  TESSERA_FN constexpr auto operator()(Sum sum, std::int64_t row, std::int64_t column) const {
    return second(first(sum, row, column), row, column);
  }
};

/// Multiplies by a number, such as the product of the scales of 8-bit operands with one scale each.
struct scaled_sum {
  float scale;  ///< the factor
  template <class Sum>
  TESSERA_FN constexpr float operator()(Sum sum, std::int64_t, std::int64_t) const {
    return static_cast<float>(sum) * scale;
  }
};

}  // namespace v0
}  // namespace tessera
