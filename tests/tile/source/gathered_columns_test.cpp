// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/gathered_columns.hpp>
#include <tessera/tile/staged_tile.hpp>

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

TEST_CASE("gathered columns of 16 bits are those of a matrix's rows", "[host]") {
  std::vector<bfloat16> values(5 * 40);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = {static_cast<std::uint16_t>(i + 1)};
  }
  std::vector<std::int64_t> const order{4, 0, -1, 4, 5, 2, 3, 1, 0, 0};
  matrix_view<bfloat16 const> const matrix(values.data(), {5, 37}, {40, 1});
  gathered_columns<bfloat16> const source{matrix, order};
  staged_tile<bfloat16, 16, 16> tile;
  for (std::int64_t const first_row : {0, 16, 32}) {
    source.load(serial_group<32>{}, tile, first_row, 0);
    int wrong = 0;
    for (int i = 0; i < 16 * 16; ++i) {
      std::int64_t const row = first_row + i / 16;
      std::int64_t const from = i % 16 < 10 ? order[static_cast<std::size_t>(i % 16)] : -1;
      bool const is_inside = row < 37 && from >= 0 && from < 5;
      wrong += tile(i / 16, i % 16) != (is_inside ? matrix(from, row) : bfloat16{});
    }
    CAPTURE(first_row);
    CHECK(wrong == 0);
  }
}
