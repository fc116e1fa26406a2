// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `load_along_rows`: a tile of a source element by element, as sources load it where they have no faster way. What
/// lies outside of the matrix is zero and not read.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Loads a tile of `source`; neighbouring lanes take neighbouring columns. `read(row, column)`: an element of it. All
/// lanes reach the call, which does not sync.
template <class G, class Tile, class Source, class Read>
TESSERA_FN void load_along_rows(G const& group, Tile& tile, Source const& source, std::int64_t first_row,
                                std::int64_t first_column, Read const& read) {
  for (int lane : group) {
    for (int i = lane; i < Tile::rows * Tile::columns; i += G::size) {
      std::int64_t const row = first_row + i / Tile::columns;
      std::int64_t const column = first_column + i % Tile::columns;
      bool const is_inside = row >= 0 && row < source.rows() && column >= 0 && column < source.columns();
      using element = typename Source::value_type;
      tile(i / Tile::columns, i % Tile::columns) = is_inside ? read(row, column) : element{};
    }
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
