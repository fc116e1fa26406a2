// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/tile/triangle.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("tiles of a triangle come row after row, each once, and know their index", "[host]") {
  for (std::int64_t const rows : {1, 2, 3, 8, 33}) {
    CAPTURE(rows);
    std::int64_t index = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = row; column < rows; ++column) {
        triangle_coordinate const tile = coordinate_in_triangle(index, rows);
        CHECK(tile.row == row);
        CHECK(tile.column == column);
        CHECK(index_in_triangle(row, column, rows) == index);
        ++index;
      }
    }
    CHECK(triangle_size(rows) == index);
  }
}
