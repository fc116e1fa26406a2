// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/filtered.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a filtered matrix keeps the laws of a tile source, and blocks left out are zeros", "[host]") {
  std::vector<float> const values(63, 5.0F);
  std::vector<std::uint8_t> const flags{1, 0, 1, 0, 0, 1};
  serial_group<32> const group;
  matrix_view<float const> const matrix(values.data(), {7, 9});
  matrix_view<std::uint8_t const> const kept(flags.data(), {2, 3});
  filtered<float> const source{matrix, kept, 4, 3};
  CHECK(testing::check_laws(source, group).text().empty());
  CHECK(testing::check_laws(filtered<float>{matrix.transposed(), kept.transposed(), 3, 4}, group).text().empty());
  tessera::detail::plain_tile<float, 7, 9> tile;
  source.load(group, tile, 0, 0);
  for (int row = 0; row < 7; ++row) {
    for (int column = 0; column < 9; ++column) {
      CHECK(tile(row, column) == (flags[static_cast<std::size_t>(row / 4 * 3 + column / 3)] != 0 ? 5.0F : 0.0F));
    }
  }
}

TEST_CASE("a filtered matrix knows which parts are zeros", "[host]") {
  std::vector<float> const values(63, 5.0F);
  std::vector<std::uint8_t> const flags{1, 0, 1, 0, 0, 1};
  filtered<float> const source{matrix_view<float const>(values.data(), {7, 9}),
                               matrix_view<std::uint8_t const>(flags.data(), {2, 3}), 4, 3};
  CHECK(source.is_zero(4, 4, 0, 6));
  CHECK(source.is_zero(0, 4, 3, 3));
  CHECK_FALSE(source.is_zero(3, 4, 0, 6));
  CHECK_FALSE(source.is_zero(4, 4, 0, 7));
  CHECK(source.is_zero(8, 64, 0, 64));
}
