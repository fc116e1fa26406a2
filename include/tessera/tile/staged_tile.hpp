// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `staged_tile<T, Rows, Columns>`: a tile in scratch, which a TileSource fills and a TileMma loads from.
///
/// Rows lie 16 bytes further apart than they are long. So eight of them begin in different banks of shared memory,
/// where rows of 32, 64 or 128 bytes would share a few banks. `chunk` is 16 bytes of a row, for sources that can move
/// so many at a time.
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The 16 bytes that are moved at a time where alignment allows.
template <class T>
struct alignas(16) tile_chunk {
  static constexpr int size = 16 / static_cast<int>(sizeof(T));
  T values[size];  ///< neighbouring elements of a row
};

template <class T, int Rows, int Columns>
struct staged_tile {
  using value_type = T;
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  /// Elements from row to row: 16 bytes more than a row has, so that columns begin in different banks.
  static constexpr int stride = Columns + tile_chunk<T>::size;
  static_assert(Columns % tile_chunk<T>::size == 0, "tessera: rows of a staged tile have whole 16 bytes");

  /// Rows of `stride` elements.
  alignas(16) T values[Rows * stride];

  /// The element at (row, column).
  TESSERA_FN constexpr T& operator()(int row, int column) { return values[row * stride + column]; }
  /// The element at (row, column).
  TESSERA_FN constexpr T const& operator()(int row, int column) const { return values[row * stride + column]; }
  /// Columns `column` to `column` + 16 / sizeof(T) - 1 of a row; `column` is a multiple of that number.
  TESSERA_FN tile_chunk<T>& chunk(int row, int column) {
    return *reinterpret_cast<tile_chunk<T>*>(values + row * stride + column);
  }
};

}  // namespace v0
}  // namespace tessera
