// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <set>

#include <tessera/tile/row_operands.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("lanes of a row have its pieces once each, one for each block", "[host]") {
  for (int const numbers : {32, 64, 128, 192}) {
    std::set<int> pieces;
    for (int block = 0; block < numbers / 32; ++block) {
      for (int lane = 0; lane < 4; ++lane) {
        CHECK(row_piece(lane, block) == row_piece(lane + 28, block));
        CHECK(row_piece(lane, block) / 4 == block);
        pieces.insert(row_piece(lane, block));
      }
    }
    CHECK(static_cast<int>(pieces.size()) == numbers / piece_numbers);
    CHECK(*pieces.rbegin() == numbers / piece_numbers - 1);
  }
}

TEST_CASE("lanes of a column have the 16 rows that are summed over once each, in the order of the first operand",
          "[host]") {
  // A lane's registers of the first operand are of depths 2t, 2t + 1 and 2t + 8, 2t + 9.
  std::set<int> rows;
  for (int lane = 0; lane < 4; ++lane) {
    for (int which = 0; which < 4; ++which) {
      CHECK(row_of_lane(lane, which) == 2 * lane + which % 2 + (which < 2 ? 0 : 8));
      rows.insert(row_of_lane(lane, which));
    }
  }
  CHECK(rows.size() == 16);
}

TEST_CASE("columns of products over rows are all numbers of a row, those of a piece in eight neighbouring tiles",
          "[host]") {
  std::set<int> numbers;
  for (int tile = 0; tile < 16; ++tile) {
    for (int column = 0; column < 8; ++column) {
      int const number = number_of_column(tile, column);
      CHECK(number / piece_numbers == tile / 8 * 8 + column);  // piece g of the 64 numbers, g the column
      CHECK(number % piece_numbers == tile % 8);
      numbers.insert(number);
    }
  }
  CHECK(numbers.size() == 128);
  CHECK(*numbers.rbegin() == 127);
}
