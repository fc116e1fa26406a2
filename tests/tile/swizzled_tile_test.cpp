// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/swizzled_tile.hpp>
#include <tessera/view/matrix_view.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Where TMA puts byte `byte` of row `row` with a swizzle of 128 bytes: bits 4 to 6 of the address are those of the
/// place in the row, each flipped where bits 7 to 9, which are the row's, are set.
std::size_t swizzled_address(int row, int byte) {
  auto const plain = static_cast<std::size_t>(row * 128 + byte);
  return plain ^ ((plain >> 7 & 7U) << 4);
}

template <class T>
void check_places() {
  using tile_type = swizzled_tile<T, 24>;
  static_assert(sizeof(tile_type) == 24 * 128 && alignof(tile_type) == 1024);
  tile_type tile;
  auto const* const begin = reinterpret_cast<std::byte const*>(tile.values);
  bool right = true;
  for (int row = 0; row < tile_type::rows; ++row) {
    for (int column = 0; column < tile_type::columns; ++column) {
      auto const* const place = reinterpret_cast<std::byte const*>(&tile(row, column));
      constexpr int bytes = static_cast<int>(sizeof(T));
      right = right && static_cast<std::size_t>(place - begin) == swizzled_address(row, column * bytes);
      int const in_chunk = column % tile_chunk<T>::size;
      right = right && &tile.chunk(row, column - in_chunk).values[in_chunk] == &tile(row, column);
    }
  }
  CHECK(right);
}

}  // namespace

TEST_CASE("elements of a swizzled tile lie where TMA puts them", "[host]") {
  check_places<bfloat16>();
  check_places<float>();
  check_places<std::int8_t>();
}

TEST_CASE("a swizzled tile is filled by any source, by elements and by chunks", "[host]") {
  std::vector<bfloat16> values;
  for (int i = 0; i < 40 * 80; ++i) {
    values.push_back(store<bfloat16>(static_cast<float>(i % 251)));
  }
  serial_group<32> const group;
  for (std::int64_t const columns : {80, 75}) {  // 75: rows do not begin at multiples of 16 bytes
    dense<bfloat16> const source{{values.data(), {40, columns}, {columns, 1}}};
    swizzled_tile<bfloat16, 16> tile;
    for (std::int64_t const row : {0, 16, 32}) {
      source.load(group, tile, row, 64);
      CHECK(testing::detail::holds(source, group, tile, row, 64));
    }
  }
}
