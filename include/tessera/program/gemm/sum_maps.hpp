// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Maps of sums: functions that a sum of a matrix product goes through in a register, before it is stored.
///
///     struct rectified {                                // a user's own: any trivially copyable function object
///       TESSERA_FN float operator()(float sum, std::int64_t, std::int64_t) const { return sum > 0 ? sum : 0; }
///     };
///     linear<bfloat16>::forward(exec, inputs, weights, chained<add_bias<float>, rectified>{{bias}, {}}, outputs);
///     linear<bfloat16>::forward(exec, inputs, weights, soft_capped{30.0F}, outputs);
///
/// Laws of a SumMap, checked by `tessera::testing::check_map_laws(map, sums, columns)`:
///   1. The result depends on the sum, the row and the column alone, in whatever order and however often it is called.
///   2. A copy of its bytes is the same map: programs carry it to a GPU as bytes.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: the global names are those that nvcc has on both sides
#include <type_traits>

#include <tessera/concepts/because.hpp>
#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
/// A map of sums: a trivially copyable function of a sum, its row and its column.
template <class M>
concept SumMap =
    (std::is_trivially_copyable_v<M>
        || because<"a map of sums is trivially copyable, because programs carry it as bytes">) &&
    (requires(M const& map, float sum, std::int64_t row, std::int64_t column) {
       requires std::is_arithmetic_v<decltype(map(sum, row, column))>;
     } || because<"a map of sums gives a number for a sum at (row, column): "
                  "float operator()(float sum, std::int64_t row, std::int64_t column) const">);
// clang-format on

/// The map that does not change sums.
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
template <SumMap First, SumMap Second>
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
