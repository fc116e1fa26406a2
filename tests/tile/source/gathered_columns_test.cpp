// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/gathered_columns.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("gathered columns keep the laws of a tile source, and columns that do not exist are zeros", "[host]") {
  std::vector<float> values(40);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i + 1);
  }
  std::vector<std::int64_t> const order{4, 0, -1, 4, 5};
  gathered_columns<float> const source{matrix_view<float const>(values.data(), {5, 8}), order};
  serial_group<32> const group;
  CHECK(testing::check_laws(source, group).text().empty());
  tessera::detail::plain_tile<float, 8, 5> tile;
  source.load(group, tile, 0, 0);
  for (int row = 0; row < 8; ++row) {
    CHECK(tile(row, 0) == values[static_cast<std::size_t>(32 + row)]);
    CHECK(tile(row, 1) == values[static_cast<std::size_t>(row)]);
    CHECK(tile(row, 2) == 0.0F);
    CHECK(tile(row, 3) == tile(row, 0));
    CHECK(tile(row, 4) == 0.0F);
  }
}
