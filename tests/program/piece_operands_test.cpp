// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <set>

#include <tessera/program/piece_operands.hpp>

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

TEST_CASE("rows of a table are all columns of products, and a lane's results are pieces", "[host]") {
  std::set<int> rows;
  for (int tile = 0; tile < 16; ++tile) {
    for (int column = 0; column < 8; ++column) {
      rows.insert(table_row(tile, column));
    }
  }
  CHECK(rows.size() == 128);
  CHECK(*rows.rbegin() == 127);
  for (int lane = 0; lane < 4; ++lane) {
    for (int part = 0; part < 4; ++part) {
      for (int i = 0; i < piece_numbers; ++i) {  // result i of a lane: column 2t + i % 2 of tile i / 2
        CHECK(table_row(4 * part + i / 2, 2 * lane + i % 2) == piece_numbers * row_piece(lane, part) + i);
      }
    }
  }
}

TEST_CASE("lanes that load together from a table find their pieces in different banks", "[host]") {
  for (int rank = 32; rank <= 256; rank += 32) {
    CAPTURE(rank);
    std::int64_t const pitch = padded_pieces(rank / piece_numbers);
    CHECK(pitch >= rank / piece_numbers);
    for (int tile = 0; tile < 16; ++tile) {
      for (int eight = 0; eight < 4; ++eight) {  // 16 bytes each: eight lanes at a time
        std::set<std::int64_t> banks;
        for (int lane = 8 * eight; lane < 8 * eight + 8; ++lane) {
          banks.insert((table_row(tile, lane / 4) * pitch + row_piece(lane, 0)) % 8);
        }
        CHECK(banks.size() == 8);
      }
    }
  }
}
