// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Extents and single elements of a matrix that is a view or a TileSource, for programs that need a few of them.
#pragma once

#include <cstdint>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class T>
TESSERA_FN constexpr std::int64_t rows_in(matrix_view<T> matrix) {
  return matrix.extent(0);
}
template <TileSource Source>
TESSERA_FN constexpr std::int64_t rows_in(Source const& source) {
  return source.rows();
}

template <class T>
TESSERA_FN constexpr std::int64_t columns_in(matrix_view<T> matrix) {
  return matrix.extent(1);
}
template <TileSource Source>
TESSERA_FN constexpr std::int64_t columns_in(Source const& source) {
  return source.columns();
}

/// The element at a row and a column, which exists. A source gives each element one value, whatever the tile.
template <class T>
TESSERA_FN constexpr T element_of(matrix_view<T const> matrix, std::int64_t row, std::int64_t column) {
  return matrix(row, column);
}
template <TileSource Source>
TESSERA_FN constexpr typename Source::value_type element_of(Source const& source, std::int64_t row,
                                                            std::int64_t column) {
  plain_tile<typename Source::value_type, 1, 1> tile{};
  source.load(lone_lane{}, tile, row, column);
  return tile(0, 0);
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
