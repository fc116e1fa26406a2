// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `tile_order`: the order in which a matrix's tiles are computed: bands of a few rows of tiles, each walked column
/// after column. So tiles that are computed at the same time share rows and columns of the operands, which are then
/// read from a cache.
///
///     tile_order const order{.rows = 32, .columns = 32, .band = 8};
///     order.at(9);                                      // row 1, column 1
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

/// The coordinate of a tile of a matrix.
struct tile_coordinate {
  std::int32_t row;     ///< of the tile, counted in tiles
  std::int32_t column;  ///< of the tile, counted in tiles
};

struct tile_order {
  std::int32_t rows;     ///< of the matrix, in tiles
  std::int32_t columns;  ///< of the matrix, in tiles
  std::int32_t band;     ///< rows of a band, at least 1

  /// How many tiles the matrix has.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t count() const { return std::int64_t{rows} * columns; }

  /// The tile at an index, 0 <= index < count(); each tile comes once. Every other band is walked backwards, so that
  /// each begins where the one before ended. Index: std::int32_t where count() fits it, which on a GPU takes a fifth of
  /// the time of std::int64_t.
  template <class Index>
  [[nodiscard]] TESSERA_FN constexpr tile_coordinate at(Index index) const {
    Index const whole_band = static_cast<Index>(band) * columns;
    auto const which = static_cast<std::int32_t>(index / whole_band);
    Index const inside = index - which * whole_band;
    std::int32_t const first = which * band;
    std::int32_t const height = min(band, rows - first);
    auto const column = static_cast<std::int32_t>(inside / height);
    auto const row = static_cast<std::int32_t>(inside - static_cast<Index>(column) * height);
    return {first + row, which % 2 == 0 ? column : columns - 1 - column};
  }
};

}  // namespace v0
}  // namespace tessera
