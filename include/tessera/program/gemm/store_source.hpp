// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `store_source`: writes rows of the matrix of any TileSource to memory, a tile of 64 rows and 128 bytes of each at a
/// time: dequantized codes, decoded weights, gathered or converted rows.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/tile/source/open_source.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Source: a TileSource, or a source that needs scratch (tile/source/open_source.hpp).
template <AnySource Source>
struct store_source {
  using value_type = typename Source::value_type;
  static constexpr int lanes = lanes_for_sources<Source, Source>(128);
  static constexpr int rows = 64;                                             ///< rows of a tile
  static constexpr int columns = 128 / static_cast<int>(sizeof(value_type));  ///< columns of a tile

  struct scratch_type {
    staged_tile<value_type, rows, columns> tile;  ///< what was loaded
    source_scratch<Source> of_source;             ///< scratch for loading the tile
  };

  Source source;                    ///< the matrix to be written
  matrix_view<value_type> outputs;  ///< rows of the source, from `first` on, x its columns
  std::int64_t first = 0;           ///< the source's row that is the outputs' first

  TESSERA_FN constexpr std::int64_t groups() const {
    return divide_up(outputs.extent(0), std::int64_t{rows}) * tiles_in_row();
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const first_row = which / tiles_in_row() * rows;
    std::int64_t const first_column = which % tiles_in_row() * columns;
    auto const& opened = open_source(group, source, scratch.of_source);
    opened.load(group, scratch.tile, first + first_row, first_column);
    group.sync();
    row_chunks<value_type> const to{outputs};
    constexpr int in_row = columns / to.size;
    for (int lane : group) {
      for (int i = lane; i < rows * in_row; i += G::size) {
        int const row = i / in_row;
        int const column = i % in_row * to.size;
        if (first_row + row < outputs.extent(0) && first_column + column < outputs.extent(1)) {
          to.store(first_row + row, first_column + column, scratch.tile.chunk(row, column));
        }
      }
    }
  }

 private:
  TESSERA_FN constexpr std::int64_t tiles_in_row() const { return divide_up(outputs.extent(1), std::int64_t{columns}); }
};

}  // namespace v0
}  // namespace tessera
