// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/filtered.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;

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

TEST_CASE("marks that are not one for each block are refused in the name of the call", "[host]") {
  std::vector<float> const matrix(70);
  std::vector<std::uint8_t> const kept(6);
  filtered<float> source{{matrix.data(), {10, 7}}, {kept.data(), {3, 2}}, 4, 4};
  CHECK_NOTHROW(source.check("f", "source"));
  source.kept = {kept.data(), {2, 2}};
  CHECK(message_of([&] { source.check("f", "source"); }) ==
        "f: the marks of blocks of the source are 2 x 2 but must be 3 x 2");
  source.block_rows = 0;
  CHECK(message_of([&] { source.check("f", "source"); }) ==
        "f: blocks of the source are 0 x 4 but neither extent may be below 1");
}
