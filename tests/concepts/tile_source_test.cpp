// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

using tessera::TileSource;
using tessera::testing::check_laws;

namespace tile_source_test {

/// A user's own TileSource: nothing is stored, an element is a function of its coordinate.
struct multiplication_table {
  using value_type = float;
  std::int64_t size;

  std::int64_t rows() const { return size; }
  std::int64_t columns() const { return size + 1; }

  template <class Group, class Tile>
  void load(Group const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    for (int lane : group) {
      for (int i = lane; i < Tile::rows * Tile::columns; i += Group::size) {
        std::int64_t const row = first_row + i / Tile::columns;
        std::int64_t const column = first_column + i % Tile::columns;
        bool const inside = row < rows() && column < columns();
        tile(i / Tile::columns, i % Tile::columns) = inside ? static_cast<float>((row + 1) * (column + 1)) : 0.0F;
      }
    }
    group.sync();
  }
};

/// Leaves what is outside as it was.
struct leaving_the_edge : multiplication_table {
  template <class Group, class Tile>
  void load(Group const&, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    for (int r = 0; r < Tile::rows && first_row + r < rows(); ++r) {
      for (int c = 0; c < Tile::columns && first_column + c < columns(); ++c) {
        tile(r, c) = 1.0F;
      }
    }
  }
};

/// Shows the coordinate in the tile instead of that in the source.
struct forgetting_the_origin : multiplication_table {
  template <class Group, class Tile>
  void load(Group const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    multiplication_table::load(group, tile, first_row, first_column);
    for (int c = 0; c < Tile::columns && first_column + c < columns() && first_row < rows(); ++c) {
      tile(0, c) = static_cast<float>(c);
    }
  }
};

struct repeating_the_last_row : multiplication_table {
  template <class Group, class Tile>
  void load(Group const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    multiplication_table{size + 1}.load(group, tile, first_row, first_column);
  }
};

static_assert(TileSource<multiplication_table>);
static_assert(!TileSource<float*>);

tessera::serial_group<4> const group;

}  // namespace tile_source_test

using namespace tile_source_test;

TEST_CASE("a user's own tile source keeps the laws", "[host]") {
  CHECK(check_laws(multiplication_table{3}, group).text().empty());
  CHECK(check_laws(multiplication_table{0}, group).text().empty());
}

TEST_CASE("a tile source that leaves the edge unwritten is caught", "[host]") {
  CHECK(check_laws(leaving_the_edge{{3}}, group).mentions("every element of a tile is written"));
}

TEST_CASE("a tile source whose elements depend on the tile is caught", "[host]") {
  CHECK(check_laws(forgetting_the_origin{{3}}, group).mentions("overlapping tiles agree"));
}

TEST_CASE("a tile source that reads beyond its end is caught", "[host]") {
  CHECK(check_laws(repeating_the_last_row{{3}}, group).mentions("outside the source there are zeros"));
}
