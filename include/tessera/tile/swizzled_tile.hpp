// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `swizzled_tile<T, Rows>`: a tile in scratch as wgmma takes an operand: rows of 128 bytes, of which chunk c of 16
/// bytes of row r lies at 128 r + 16 (c ^ (r % 8)), where TMA would put it (tile/cuda/sm_90/tensor_map.cuh).
///
/// Any TileSource can fill it, as it fills a staged_tile: element by element, or by chunks of 16 bytes. Eight rows of a
/// chunk lie in different banks of shared memory.
#pragma once

#include <tessera/config.hpp>
#include <tessera/tile/staged_tile.hpp>

namespace tessera {
inline namespace v0 {

template <class T, int Rows>
struct swizzled_tile {
  using value_type = T;
  static constexpr int rows = Rows;
  static constexpr int columns = 128 / static_cast<int>(sizeof(T));
  static_assert(Rows % 8 == 0, "tessera: a swizzled tile has whole 8 rows");

  /// Rows of 128 bytes, each a permutation of its chunks.
  alignas(1024) T values[Rows * columns];

  /// The element at (row, column).
  TESSERA_FN constexpr T& operator()(int row, int column) { return values[place(row, column)]; }
  /// The element at (row, column).
  TESSERA_FN constexpr T const& operator()(int row, int column) const { return values[place(row, column)]; }
  /// Columns `column` to `column` + 16 / sizeof(T) - 1 of a row; `column` is a multiple of that number.
  TESSERA_FN tile_chunk<T>& chunk(int row, int column) {
    return *reinterpret_cast<tile_chunk<T>*>(values + place(row, column));
  }

 private:
  static constexpr unsigned chunk_size = tile_chunk<T>::size;

  TESSERA_FN static constexpr unsigned place(int row, int column) {
    auto const r = static_cast<unsigned>(row);
    auto const c = static_cast<unsigned>(column);
    return r * static_cast<unsigned>(columns) + (c / chunk_size ^ r % 8U) * chunk_size + c % chunk_size;
  }
};

}  // namespace v0
}  // namespace tessera
