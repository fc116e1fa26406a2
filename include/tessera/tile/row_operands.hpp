// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How rows of 16-bit numbers become operands of tensor cores (mma.sync.m16n8k16) straight from global memory, in
/// pieces of eight numbers, 16 bytes. A product may go over the numbers of its rows in any order, as long as both
/// operands have the same order.
///
/// With g = lane / 4 and t = lane % 4, a lane of a warp loads
///
///     of a row that is summed over, row g      pieces t, t + 4, t + 8, ...           (row_piece)
///     of rows that are summed over, row 2t     piece g of each 64 numbers            (and rows 2t + 1, 2t + 8, 2t + 9)
///
/// Piece t + 4 b of a row is what its lane needs for the two products, of depth 16 each, over the numbers from 32 b on:
/// words 0 and 1 of the piece are for the first product, words 2 and 3 for the second. Piece g of four rows is what the
/// lane needs for eight products, whose columns are number j of every piece, so that columns are not neighbours.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// How many numbers a piece has.
inline constexpr int piece_numbers = 8;

/// The piece of a row that a lane loads for products over the numbers from 32 * `block` on.
[[nodiscard]] TESSERA_FN constexpr int row_piece(int lane, int block) {
  return 4 * block + lane % 4;
}
/// Row number `which` of the four that a lane loads, among the 16 rows that are summed over.
[[nodiscard]] TESSERA_FN constexpr int row_of_lane(int lane, int which) {
  return lane % 4 * 2 + which % 2 + which / 2 * 8;
}
/// The number of a row that is column `column`, 0 to 7, of product `tile` over rows.
[[nodiscard]] TESSERA_FN constexpr int number_of_column(int tile, int column) {
  return 64 * (tile / 8) + piece_numbers * column + tile % 8;
}

}  // namespace v0
}  // namespace tessera
