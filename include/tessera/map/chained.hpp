// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `chained`: the map of sums (concepts/sum_map.hpp) that is two maps, one after the other. Three are chained by
/// `chained<chained<A, B>, C>`.
///
///     linear<bfloat16>::forward(exec, inputs, weights, chained<scaled_sum, add_bias<float>>{{0.5F}, {bias}}, outputs);
#pragma once

#include <cstdint>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/config.hpp>
#include <tessera/view/visit_views.hpp>

namespace tessera {
inline namespace v0 {

/// Applies one map after the other.
template <SumMap First, SumMap Second>
struct chained {
  First first;    ///< the map that sums go through first
  Second second;  ///< the map that the results of `first` go through

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    visit_views(first, use);
    visit_views(second, use);
  }
  /// Lets both maps refuse a product of so many rows and columns.
  void check_sums([[maybe_unused]] char const* function, [[maybe_unused]] std::int64_t rows,
                  [[maybe_unused]] std::int64_t columns) const {
    if constexpr (requires { first.check_sums(function, rows, columns); }) {
      first.check_sums(function, rows, columns);
    }
    if constexpr (requires { second.check_sums(function, rows, columns); }) {
      second.check_sums(function, rows, columns);
    }
  }
  template <class Sum>
  TESSERA_FN constexpr auto operator()(Sum sum, std::int64_t row, std::int64_t column) const {
    return second(first(sum, row, column), row, column);
  }
};

}  // namespace v0
}  // namespace tessera
