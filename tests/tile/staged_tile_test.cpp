// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/tile/staged_tile.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Marks each element through its coordinate and reads it back from memory and by chunks.
template <class T, int Rows, int Columns>
void check_staged_tile() {
  using tile_type = staged_tile<T, Rows, Columns>;
  constexpr int in_chunk = tile_chunk<T>::size;
  CAPTURE(sizeof(T), Rows, Columns);
  CHECK(sizeof(tile_chunk<T>) == 16);
  CHECK(tile_type::stride * static_cast<int>(sizeof(T)) == Columns * static_cast<int>(sizeof(T)) + 16);
  CHECK(sizeof(tile_type) == static_cast<std::size_t>(Rows) * tile_type::stride * sizeof(T));
  static tile_type tile;
  for (int row = 0; row < Rows; ++row) {
    for (int column = 0; column < Columns; ++column) {
      tile(row, column) = T(row * Columns + column);
    }
  }
  int wrong = 0;
  tile_type const& fixed = tile;
  for (int row = 0; row < Rows; ++row) {
    for (int column = 0; column < Columns; column += in_chunk) {
      tile_chunk<T> const& chunk = tile.chunk(row, column);
      wrong += reinterpret_cast<std::uintptr_t>(&chunk) % 16 == 0 ? 0 : 1;
      for (int i = 0; i < in_chunk; ++i) {
        T const expected(row * Columns + column + i);
        bool const right = chunk.values[i] == expected && fixed(row, column + i) == expected &&
                           tile.values[row * tile_type::stride + column + i] == expected;
        wrong += right ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
}

/// The number of different banks of shared memory (4 bytes each, 32 of them) in which a column's eight rows begin.
template <class Tile>
int banks_of_eight_rows() {
  bool taken[8] = {};
  int count = 0;
  for (int row = 0; row < 8; ++row) {
    int const bytes = row * Tile::stride * static_cast<int>(sizeof(typename Tile::value_type));
    int const quarter = bytes / 16 % 8;
    count += taken[quarter] ? 0 : 1;
    taken[quarter] = true;
  }
  return count;
}

}  // namespace

TEST_CASE("a staged tile keeps each element at its coordinate and 16 bytes more in each row", "[host]") {
  check_staged_tile<float, 1, 4>();
  check_staged_tile<float, 9, 16>();
  check_staged_tile<std::int32_t, 64, 32>();
  check_staged_tile<std::int8_t, 3, 16>();
  check_staged_tile<std::uint16_t, 17, 8>();
}

TEST_CASE("eight rows of a staged tile begin in different banks", "[host]") {
  CHECK(banks_of_eight_rows<staged_tile<bfloat16, 64, 32>>() == 8);
  CHECK(banks_of_eight_rows<staged_tile<bfloat16, 64, 64>>() == 8);
  CHECK(banks_of_eight_rows<staged_tile<float, 64, 32>>() == 8);
  CHECK(banks_of_eight_rows<staged_tile<float8_e4m3, 64, 128>>() == 8);
}
