// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a TileSource that runs on the host.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/source/async_source.hpp>
#include <tessera/tile/source/fetched_source.hpp>
#include <tessera/tile/staged_tile.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

template <class T>
bool same_bytes(T const& a, T const& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// The only element of a tile of one row and one column.
template <TileSource S, class G>
typename S::value_type element(S const& source, G const& group, std::int64_t row, std::int64_t column) {
  tessera::detail::plain_tile<typename S::value_type, 1, 1> tile{};
  source.load(group, tile, row, column);
  return tile(0, 0);
}

/// Loads a tile over two different fillings, and compares each of its elements with the element alone.
template <int Rows, int Columns, TileSource S, class G>
void check_tile(law_report& report, S const& source, G const& group, std::int64_t first_row,
                std::int64_t first_column) {
  tessera::detail::plain_tile<typename S::value_type, Rows, Columns> tiles[2];
  std::memset(&tiles[0], 0x11, sizeof(tiles[0]));
  std::memset(&tiles[1], 0x2f, sizeof(tiles[1]));
  source.load(group, tiles[0], first_row, first_column);
  source.load(group, tiles[1], first_row, first_column);
  for (int r = 0; r < Rows; ++r) {
    for (int c = 0; c < Columns; ++c) {
      std::int64_t const row = first_row + r;
      std::int64_t const column = first_column + c;
      std::string const name = "row " + std::to_string(row) + ", column " + std::to_string(column);
      report.expect(same_bytes(tiles[0](r, c), tiles[1](r, c)), "every element of a tile is written", name);
      if (row < source.rows() && column < source.columns()) {
        report.expect(same_bytes(tiles[0](r, c), element(source, group, row, column)), "overlapping tiles agree", name);
      } else {
        report.expect(same_bytes(tiles[0](r, c), typename S::value_type{}), "outside the source there are zeros", name);
      }
    }
  }
}

/// Whether every element of a tile is that of the source, or zero outside of it.
template <TileSource S, class G, class Tile>
bool holds(S const& source, G const& group, Tile const& tile, std::int64_t first_row, std::int64_t first_column) {
  bool right = true;
  for (int r = 0; r < Tile::rows; ++r) {
    for (int c = 0; c < Tile::columns; ++c) {
      std::int64_t const row = first_row + r;
      std::int64_t const column = first_column + c;
      bool const is_inside = row < source.rows() && column < source.columns();
      auto const expected = is_inside ? element(source, group, row, column) : typename S::value_type{};
      right = right && same_bytes(tile(r, c), expected);
    }
  }
  return right;
}

/// Loads a tile whose elements can be written 16 bytes at a time, at once and in two steps.
template <TileSource S, class G>
void check_chunked_tile(law_report& report, S const& source, G const& group, std::int64_t first_row,
                        std::int64_t first_column) {
  using tile_type = staged_tile<typename S::value_type, 5, 64>;
  std::string const name = "row " + std::to_string(first_row) + ", column " + std::to_string(first_column);
  tile_type tile;
  std::memset(&tile, 0x2f, sizeof(tile));
  source.load(group, tile, first_row, first_column);
  report.expect(holds(source, group, tile, first_row, first_column), "tiles of 16-byte chunks agree with others", name);
  if constexpr (FetchedSource<S, G, tile_type>) {
    if (first_column % tile_type::columns == 0) {
      typename S::template fetched<G, tile_type> next;
      std::memset(&tile, 0x11, sizeof(tile));
      source.fetch(group, next, first_row, first_column);
      source.store(group, next, tile);
      report.expect(holds(source, group, tile, first_row, first_column), "fetch() and store() load what load() does",
                    name);
    }
  }
  if constexpr (AsyncSource<S, G, tile_type>) {
    std::memset(&tile, 0x11, sizeof(tile));
    source.begin_load(group, tile, first_row, first_column);
    copies_in_flight<G>::commit();
    copies_in_flight<G>::template await<0>();
    group.sync();
    report.expect(holds(source, group, tile, first_row, first_column), "begin_load() loads what load() does", name);
  }
}

}  // namespace detail

/// Checks `source` with `group` on tiles of several shapes at many coordinates, over its edges too. It is for small
/// sources.
template <TileSource S, class G>
law_report check_laws(S const& source, G const& group) {
  law_report report;
  report.expect(source.rows() >= 0 && source.columns() >= 0, "rows() and columns() are not negative");
  for (std::int64_t row = 0; row <= source.rows(); ++row) {
    for (std::int64_t column = 0; column <= source.columns(); ++column) {
      detail::check_tile<2, 3>(report, source, group, row, column);
      detail::check_tile<4, 1>(report, source, group, row, column);
    }
  }
  if constexpr (16 % sizeof(typename S::value_type) == 0) {
    for (std::int64_t row = 0; row <= source.rows(); row += 4) {
      for (std::int64_t const column : {0, 1, 16, 32, 64}) {
        detail::check_chunked_tile(report, source, group, row, column);
      }
    }
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
