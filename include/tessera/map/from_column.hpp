// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `from_column`: the map of sums (concepts/sum_map.hpp) of a part of a matrix's columns: another map, which gets the
/// columns that sums have in the whole matrix.
///
///     from_column<add_bias<float>> const map{{bias}, 256};    // for a product of columns 256, 257, ...
#pragma once

#include <cstdint>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/config.hpp>
#include <tessera/view/visit_views.hpp>

namespace tessera {
inline namespace v0 {

/// The map of the columns from `first` on.
template <SumMap Map>
struct from_column {
  static constexpr bool operands_lie_along = true;  ///< as those of products with panels of weights do
  Map map;                                          ///< the map of the whole matrix
  std::int64_t first;                               ///< the column of the whole matrix that is this one's column 0

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    visit_views(map, use);
  }
  template <class Sum>
  TESSERA_FN constexpr auto operator()(Sum sum, std::int64_t row, std::int64_t column) const {
    return map(sum, row, first + column);
  }
};

}  // namespace v0
}  // namespace tessera
