// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A program that copies the matrix of any source into a plain one, tile by tile.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/source/open_source.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_test {

template <tessera::AnySource Source, int Rows, int Columns>
struct gather_tiles {
  using value_type = typename Source::value_type;
  static constexpr int lanes = tessera::lanes_for_sources<Source, Source>(32);

  struct tile_type {
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    value_type values[Rows][Columns];
    TESSERA_FN value_type& operator()(int row, int column) { return values[row][column]; }
  };
  struct scratch_type {
    tessera::source_scratch<Source> source;
    tile_type tile;
  };

  Source source;
  tessera::matrix_view<value_type> matrix;

  TESSERA_FN std::int64_t tiles_in_row() const { return tessera::divide_up(matrix.extent(1), std::int64_t{Columns}); }
  std::int64_t tiles() const {
    return matrix.is_empty() ? 0 : tiles_in_row() * tessera::divide_up(matrix.extent(0), std::int64_t{Rows});
  }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    auto const& opened = tessera::open_source(group, source, scratch.source);
    std::int64_t const first_row = which / tiles_in_row() * Rows;
    std::int64_t const first_column = which % tiles_in_row() * Columns;
    opened.load(group, scratch.tile, first_row, first_column);
    for (int lane : group) {
      for (int i = lane; i < Rows * Columns; i += lanes) {
        std::int64_t const row = first_row + i / Columns;
        std::int64_t const column = first_column + i % Columns;
        if (row < matrix.extent(0) && column < matrix.extent(1)) {
          matrix(row, column) = scratch.tile(i / Columns, i % Columns);
        }
      }
    }
    group.sync();
  }
};

}  // namespace tessera_test
