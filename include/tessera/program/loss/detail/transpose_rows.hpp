// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `transpose_rows`: writes a matrix transposed, with zeros behind it, for products that sum along rows of both
/// operands. `transposed_tile` is the tile in which a group does so.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A tile that a group fills by rows and writes by columns, 16 bytes at a time.
template <class T>
struct transposed_tile {
  static constexpr int edge = 64;                          ///< rows and columns
  static constexpr int size = tile_chunk<T>::size;         ///< elements of a chunk of 16 bytes
  static constexpr int in_row = edge / size;               ///< chunks of a row
  T values[edge][edge + 4 / static_cast<int>(sizeof(T))];  ///< rows begin a bank further on

  /// Puts a chunk into a row, from a column on.
  TESSERA_FN void put(int row, int column, tile_chunk<T> const& chunk) {
    for (int k = 0; k < size; ++k) {
      values[row][column + k] = chunk.values[k];
    }
  }
  /// Writes the tile's columns to rows of a matrix, from an element on, as far as there are some; after group.sync().
  template <Group G>
  TESSERA_FN void store_transposed(G const& group, matrix_view<T> to, std::int64_t first_row,
                                   std::int64_t first_column) const {
    row_chunks<T> const rows{to};
    for (int lane : group) {
      for (int i = lane; i < edge * in_row; i += G::size) {
        int const from = i / in_row;
        int const across = i % in_row * size;
        if (first_row + from < to.extent(0)) {
          tile_chunk<T> found;
          for (int k = 0; k < size; ++k) {
            found.values[k] = values[across + k][from];
          }
          rows.store(first_row + from, first_column + across, found);
        }
      }
    }
  }
};

/// Writes a matrix transposed. A group takes a tile. Cost: each element is read and written once.
template <class T>
struct transpose_rows {
  static constexpr int lanes = 256;
  using scratch_type = transposed_tile<T>;

  matrix_view<T const> from;  ///< rows x columns, of any strides
  matrix_view<T> to;          ///< columns x at least as many rows; zeros behind these

  /// How many tiles of columns are beside each other.
  TESSERA_FN constexpr std::int64_t across() const { return divide_up(to.extent(0), edge); }
  TESSERA_FN constexpr std::int64_t groups() const { return across() * divide_up(to.extent(1), edge); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const first_row = which / across() * edge;
    std::int64_t const first_column = which % across() * edge;
    row_chunks<T const> const rows{from};
    for (int lane : group) {
      for (int i = lane; i < edge * scratch_type::in_row; i += lanes) {
        int const row = i / scratch_type::in_row;
        int const column = i % scratch_type::in_row * scratch_type::size;
        bool const is_there = first_row + row < from.extent(0);
        scratch.put(row, column, is_there ? rows.load(first_row + row, first_column + column) : tile_chunk<T>{});
      }
    }
    group.sync();
    scratch.store_transposed(group, to, first_column, first_row);
  }

 private:
  static constexpr std::int64_t edge = scratch_type::edge;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
