// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `store_compact`: the epilogue of gemm_tiles that writes the sums of some rows and columns side by side, so that the
/// result is as large as the wanted part of the product, not as the whole product.
///
///     std::vector<std::int64_t> const rows{0, -1, 1, -1};           // of 4 rows, the first and the third
///     store_compact<float, plain_sum> const epilogue{target, rows, {}, {}};
///
/// A list says at which place of the target each row (or column) of the product goes. -1, or any other place that the
/// target does not have, leaves it out. Without a list each goes to the place of its own number. No two rows (or
/// columns) may have the same place.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

template <class Output, class Map>
struct store_compact {
  matrix_view<Output> target;
  array_view<std::int64_t const> row_places;     ///< the place of each row of the product; null: no list
  array_view<std::int64_t const> column_places;  ///< the place of each column of the product; null: no list
  Map map;                                       ///< the map of sums; it gets rows and columns of the product

  template <class Sum>
  TESSERA_FN constexpr void operator()(std::int64_t row, std::int64_t column, Sum sum) const {
    std::int64_t const to_row = place(row_places, row);
    std::int64_t const to_column = place(column_places, column);
    if (to_row >= 0 && to_row < target.extent(0) && to_column >= 0 && to_column < target.extent(1)) {
      target(to_row, to_column) = detail::stored_sum<Output>(map(sum, row, column));
    }
  }

 private:
  TESSERA_FN static constexpr std::int64_t place(array_view<std::int64_t const> places, std::int64_t index) {
    return places.data == nullptr ? index : places[index];
  }
};

}  // namespace v0
}  // namespace tessera
