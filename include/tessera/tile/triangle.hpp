// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The tiles on and above the diagonal of a square matrix of tiles, row by row: those of a symmetric matrix that must
/// be computed.
///
///     triangle_coordinate const tile = coordinate_in_triangle(4, 3);   // {1, 2}: after (0, 0) (0, 1) (0, 2) (1, 1)
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The coordinate of a tile on or above the diagonal.
struct triangle_coordinate {
  std::int32_t row;     ///< row of tiles
  std::int32_t column;  ///< column of tiles, at least the row
};

/// How many tiles on and above the diagonal a square of so many rows has.
[[nodiscard]] TESSERA_FN constexpr std::int64_t triangle_size(std::int64_t rows) {
  return rows * (rows + 1) / 2;
}

/// The coordinate of the tile at an index, in a square of so many rows. It takes a step for each row: squares have some
/// tens of tiles a side.
[[nodiscard]] TESSERA_FN constexpr triangle_coordinate coordinate_in_triangle(std::int64_t index, std::int64_t rows) {
  std::int64_t row = 0;
  for (; index >= rows - row; ++row) {
    index -= rows - row;
  }
  return {static_cast<std::int32_t>(row), static_cast<std::int32_t>(row + index)};
}

/// The index of the tile at (row, column), the inverse of coordinate_in_triangle().
[[nodiscard]] TESSERA_FN constexpr std::int64_t index_in_triangle(std::int64_t row, std::int64_t column,
                                                                  std::int64_t rows) {
  return row * rows - row * (row - 1) / 2 + column - row;
}

}  // namespace v0
}  // namespace tessera
