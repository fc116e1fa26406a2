// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/int4_codes.hpp>
#include <tessera/tile/staged_tile.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Codes at random; `gap` bytes between the rows, `offset` before the first.
struct some_codes {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t offset;
  std::int64_t stride;
  std::vector<int4x2> bytes;

  some_codes(std::int64_t row_count, std::int64_t column_count, std::int64_t start, std::int64_t gap)
      : rows(row_count), columns(column_count), offset(start), stride(column_count / 2 + gap) {
    for (std::int64_t i = 0; i < offset + rows * stride + 16; ++i) {
      bytes.push_back({static_cast<std::uint8_t>(testing::hash(1, static_cast<std::uint64_t>(i)))});
    }
    while (reinterpret_cast<std::uintptr_t>(bytes.data() + offset - start) % 16 != 0) {
      ++offset;  // the allocator's own alignment may be less
    }
  }
  int4_codes source() const { return {{bytes.data() + offset, {rows, columns / 2}, {stride, 1}}}; }
  float code(std::int64_t row, std::int64_t column) const {
    if (row < 0 || row >= rows || column < 0 || column >= columns) {
      return 0;
    }
    int4x2 const pair = bytes[static_cast<std::size_t>(offset + row * stride + column / 2)];
    return static_cast<float>(column % 2 == 0 ? low(pair) : high(pair));
  }
};

using tile_type = staged_tile<bfloat16, 5, 64>;

int wrong_in(tile_type const& tile, some_codes const& codes, std::int64_t first_row, std::int64_t first_column) {
  int wrong = 0;
  for (int row = 0; row < tile_type::rows; ++row) {
    for (int column = 0; column < tile_type::columns; ++column) {
      wrong += load(tile(row, column)) == codes.code(first_row + row, first_column + column) ? 0 : 1;
    }
  }
  return wrong;
}

void check_codes(some_codes const& codes) {
  CAPTURE(codes.rows, codes.columns, codes.offset, codes.stride);
  serial_group<32> const group;
  CHECK(testing::check_laws(codes.source(), group).text().empty());
  for (std::int64_t const first_row : {-6, -2, 0, 4, 100}) {
    for (std::int64_t const first_column : {-64, -3, 0, 1, 32, 64, 96}) {
      CAPTURE(first_row, first_column);
      tile_type tile;
      codes.source().load(group, tile, first_row, first_column);
      CHECK(wrong_in(tile, codes, first_row, first_column) == 0);
    }
  }
}

/// Fetches a tile and stores it afterwards.
struct copy_tile {
  static constexpr int lanes = 32;
  struct scratch_type {
    tile_type tile;
  };
  int4_codes source;
  tile_type* to;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    int4_codes::fetched<Group, tile_type> codes;
    source.fetch(group, codes, which * tile_type::rows, 0);
    source.store(group, codes, scratch.tile);
    group.sync();
    for (int lane : group) {
      for (int i = lane; i < tile_type::rows * tile_type::columns; i += lanes) {
        to[which](i / tile_type::columns, i % tile_type::columns) =
            scratch.tile(i / tile_type::columns, i % tile_type::columns);
      }
    }
  }
};

}  // namespace

TEST_CASE("a matrix of 4-bit codes keeps the laws of a tile source and shows every code, however it lies", "[host]") {
  check_codes({9, 128, 0, 0});  // whole chunks
  check_codes({9, 96, 0, 16});  // the last tile is partly outside
  check_codes({9, 128, 1, 0});  // not aligned
  check_codes({9, 128, 0, 3});  // nor are the rows
  check_codes({3, 2, 0, 0});
  check_codes({1, 66, 0, 0});
}

TEST_CASE("all sixteen codes are widened exactly, in each of the eight slots", "[host]") {
  for (int slot = 0; slot < 8; ++slot) {
    for (int code = -8; code < 8; ++code) {
      auto const values = widen_int4(serial_group<1>{}, (static_cast<std::uint32_t>(code) & 15U) << (4 * slot));
      for (int i = 0; i < 8; ++i) {
        CHECK(to_bits(values.values[i]) == to_bits(store<bfloat16>(static_cast<float>(i == slot ? code : 0))));
      }
    }
  }
}

TEST_CASE("codes that are fetched before they are stored keep the rules for programs", "[host]") {
  some_codes const codes(12, 64, 0, 0);
  std::vector<tile_type> tiles(3);
  testing::adversary const exec{.seed = 3};
  exec.run(copy_tile{codes.source(), tiles.data()}, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(wrong_in(tiles[i], codes, static_cast<std::int64_t>(i) * tile_type::rows, 0) == 0);
  }
}
