// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/tile/tile_order.hpp>

#include "support/catch.hpp"

using tessera::tile_order;

TEST_CASE("an order visits each tile once, whatever the extents and the band", "[host]") {
  for (int const rows : {1, 2, 7, 8, 9, 17}) {
    for (int const columns : {1, 3, 16}) {
      for (int const band : {1, 8, 100}) {
        CAPTURE(rows, columns, band);
        tile_order const order{rows, columns, band};
        REQUIRE(order.count() == rows * columns);
        std::vector<int> visits(static_cast<std::size_t>(rows * columns));
        bool inside = true;
        for (std::int64_t i = 0; i < order.count(); ++i) {
          auto const at = order.at(i);
          inside = inside && at.row >= 0 && at.row < rows && at.column >= 0 && at.column < columns;
          if (inside) {
            ++visits[static_cast<std::size_t>(at.row * columns + at.column)];
          }
        }
        CHECK(inside);
        CHECK(visits == std::vector<int>(visits.size(), 1));
      }
    }
  }
}

TEST_CASE("a band ends beside the tile where the next begins", "[host]") {
  tile_order const order{16, 4, 8};
  CHECK(order.at(31).column == 3);
  CHECK(order.at(32).column == 3);
  CHECK(order.at(32).row == 8);
}

TEST_CASE("numbers of tiles may exceed 31 bits", "[host]") {
  tile_order const order{1 << 20, 1 << 20, 8};
  auto const last = order.at(order.count() - 1);
  CHECK(last.row == (1 << 20) - 1);
  CHECK(last.column == 0);
}
