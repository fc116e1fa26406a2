// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `lane_operand`: a tile of which a lane of a warp keeps in registers what it holds of an operand of mma.sync.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/staged_tile.hpp>

namespace tessera {
inline namespace v0 {

/// Rows x Columns elements of 16 bits. The lane with the number l has rows l / 4, l / 4 + 8 and so on, and of each the
/// (l % 4)-th quarter of the columns. It can only write what it has.
///
/// mma.sync multiplies over 16 columns, of which a lane gives four. Which columns of the matrix these are does not
/// matter as long as both operands take the same: here four neighbours, so that 16 bytes of a row serve two
/// instructions, and nothing moves between lanes.
template <class T, int Rows, int Columns>
struct lane_operand {
  static_assert(sizeof(T) == 2 && Rows % 16 == 0 && Columns % 32 == 0);
  using value_type = T;
  static constexpr int rows = Rows;                                        ///< rows of all lanes
  static constexpr int columns = Columns;                                  ///< columns of all lanes
  static constexpr int chunks_of_row = Columns / 4 / tile_chunk<T>::size;  ///< chunks of a row that a lane has

  tile_chunk<T> chunks[Rows / 8][chunks_of_row];  ///< what the lane has

  /// 16 bytes, number `part` of those of the lane's row number `row_of_lane`.
  TESSERA_FN tile_chunk<T>& lane_chunk(int row_of_lane, int part) { return chunks[row_of_lane][part]; }
  /// The two elements with number 2 * pair and 2 * pair + 1 of a chunk.
  TESSERA_FN std::uint32_t pair(int row_of_lane, int chunk_of_row, int pair) const {
    tile_chunk<T> const& from = chunks[row_of_lane][chunk_of_row];
    return std::uint32_t{bit_cast<std::uint16_t>(from.values[2 * pair])} |
           std::uint32_t{bit_cast<std::uint16_t>(from.values[2 * pair + 1])} << 16;
  }
};

/// The same for a source that makes pairs of elements as words, `B::makes_words`: it writes words. Taken apart into
/// elements and joined again, pairs that come from several branches take an instruction for each element. (Elements
/// that are converted one by one are better joined here: as words, products of codes of 4 and 8 bits spill a register.)
template <class T, int Rows, int Columns>
struct lane_operand_in_words {
  static_assert(sizeof(T) == 2 && Rows % 16 == 0 && Columns % 32 == 0);
  using value_type = T;
  static constexpr int rows = Rows;                      ///< rows of all lanes
  static constexpr int columns = Columns;                ///< columns of all lanes
  static constexpr int chunks_of_row = Columns / 4 / 8;  ///< chunks of 16 bytes of a row that a lane has

  std::uint32_t words[Rows / 8][chunks_of_row][4];  ///< what the lane has

  /// The words of 16 bytes, number `part` of those of the lane's row number `row_of_lane`.
  TESSERA_FN std::uint32_t (&lane_words(int row_of_lane, int part))[4] { return words[row_of_lane][part]; }
  /// The two elements with number 2 * pair and 2 * pair + 1 of a chunk.
  TESSERA_FN std::uint32_t pair(int row_of_lane, int chunk_of_row, int pair) const {
    return words[row_of_lane][chunk_of_row][pair];
  }
};

/// The operand of a warp's lanes for what a source makes.
template <class B, int Rows, int Columns>
struct operand_from {
  /// An operand that is written as chunks of elements.
  using type = lane_operand<typename B::value_type, Rows, Columns>;
};
template <class B, int Rows, int Columns>
/// The same for a source that makes words.
requires(B::makes_words) struct operand_from<B, Rows, Columns> {
  /// An operand that is written as words.
  using type = lane_operand_in_words<typename B::value_type, Rows, Columns>;
};

}  // namespace v0
}  // namespace tessera
