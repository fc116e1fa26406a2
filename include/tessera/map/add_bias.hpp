// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `add_bias`: the map of sums (concepts/sum_map.hpp) that adds a number to each column, such as the bias of a layer.
///
///     linear<bfloat16>::forward(exec, inputs, weights, add_bias<float>{bias}, outputs);
#pragma once

#include <cstdint>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// Adds a number to each column.
template <class Bias>
struct add_bias {
  array_view<Bias const> bias;  ///< the number of each column

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("biases", bias);
  }
  /// Throws shape_error where there is not a number for each column, value_error where they have no memory; both name
  /// `function`. Products ask every map that has such a function.
  void check_sums(char const* function, std::int64_t /*rows*/, std::int64_t columns) const {
    check<shape_error>(bias.size() == columns, function, ": the bias has ", bias.size(),
                       " values but the outputs have ", columns, " columns");
    check_memory(function, "biases", bias);
  }
  template <class Sum>
  TESSERA_FN constexpr float operator()(Sum sum, std::int64_t, std::int64_t column) const {
    return static_cast<float>(sum) + static_cast<float>(load(bias[column]));
  }
};
static_assert(SumMap<add_bias<float>>);

}  // namespace v0
}  // namespace tessera
