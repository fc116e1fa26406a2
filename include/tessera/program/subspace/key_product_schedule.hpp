// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The schedules of the two products of a prompt's keys that program/subspace/key_products.cuh computes, and where
/// their operands begin:
///
///     gram_schedule        K^T K in tiles of 256 x 256 on and above the diagonal, 2048 tokens at a time
///     projection_schedule  K Q in tiles of 256 tokens, over all channels
///
/// Keys are heads x tokens x channels; channel c of all heads is channel c % channels of head c / channels. Boxes have
/// 64 tokens and 64 channels, so that heads must have a multiple of 64 channels. A cluster of two thread blocks
/// computes a tile, 128 rows each.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/tile/head_coordinate.hpp>
#include <tessera/tile/triangle.hpp>

namespace tessera {
inline namespace v0 {

/// A work item: a tile, over a part of the depth.
struct head_work_item {
  std::int32_t row;      ///< row of the tile, in tiles
  std::int32_t column;   ///< column of the tile, in tiles
  std::int32_t part;     ///< part of the depth
  std::int32_t k_tiles;  ///< k-tiles, 64 of the depth each, one for each pipeline stage
};

/// The rows, and columns, of a box.
inline constexpr int head_box = 64;

/// The schedule of the products of channels with each other, over some of the tokens.
struct gram_schedule {
  static constexpr std::int32_t tile = 256;  ///< channels of a side of a tile
  /// Tokens whose products are summed in registers.
  static constexpr std::int32_t part_tokens = 2048;
  static constexpr std::int64_t tile_elements = std::int64_t{tile} * tile;  ///< sums of a tile

  std::int32_t channels;  ///< channels of a head
  std::int32_t width;     ///< channels of all heads
  std::int32_t first;     ///< the first token
  std::int32_t tokens;    ///< tokens from `first` on, in parts of which the last may be shorter

  /// The parts whose sums are in memory at a time: with 10 tiles (1024 channels) 13, which are two rounds of 66
  /// clusters less two, in 33 MiB, so that they are still in L2 when they are added up; never more than 32.
  [[nodiscard]] TESSERA_FN static constexpr std::int64_t parts_at_a_time(std::int64_t width) {
    constexpr std::int64_t most_tiles = 132;
    std::int64_t const fitting = most_tiles / triangle_size(divide_up(width, std::int64_t{tile}));
    return max(min(fitting, std::int64_t{32}), std::int64_t{1});
  }
  /// The elements of the sums of a part.
  [[nodiscard]] TESSERA_FN static constexpr std::int64_t part_elements(std::int64_t width) {
    return triangle_size(divide_up(width, std::int64_t{tile})) * tile_elements;
  }

  /// The number of parts of the tokens.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t parts() const { return divide_up(tokens, part_tokens); }
  /// The tiles of a side.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t tiles_across() const { return divide_up(width, tile); }
  /// The tiles on and above the diagonal.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t tiles() const {
    return static_cast<std::int32_t>(triangle_size(tiles_across()));
  }
  /// The work items: tiles of all parts.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return parts() * tiles(); }
  /// Work item number `index`: all tiles of a part come first, then those of the next part.
  [[nodiscard]] TESSERA_FN constexpr head_work_item at(std::int32_t index) const {
    std::int32_t const part = index / tiles();
    triangle_coordinate const coordinate = coordinate_in_triangle(index % tiles(), tiles_across());
    std::int32_t const left = min(tokens - part * part_tokens, part_tokens);
    return {coordinate.row, coordinate.column, part, divide_up(left, head_box)};
  }

  /// The coordinates in a of 64 tokens by 64 channels, from channel `row` of the tile's rows on.
  [[nodiscard]] TESSERA_FN constexpr head_coordinate a_coordinate(head_work_item const& item, std::int32_t row,
                                                                  std::int32_t k_tile) const {
    return coordinate_of(item.row * tile + row, item, k_tile * head_box);
  }
  /// The coordinates in b of tokens, from token `depth` of the k-tile on, by 64 channels, from channel `column` of the
  /// tile's columns on.
  [[nodiscard]] TESSERA_FN constexpr head_coordinate b_coordinate(head_work_item const& item, std::int32_t column,
                                                                  std::int32_t depth, std::int32_t k_tile) const {
    return coordinate_of(item.column * tile + column, item, k_tile * head_box + depth);
  }

  /// The coordinates in a of the next k-tile, without a division.
  [[nodiscard]] TESSERA_FN constexpr head_coordinate next_a(head_coordinate at) const {
    return {at.column, at.row + head_box, at.head};
  }
  /// The coordinates in b of the next k-tile, without a division.
  [[nodiscard]] TESSERA_FN constexpr head_coordinate next_b(head_coordinate at) const { return next_a(at); }

  /// The index of an element of a tile in the parts' sums.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t element(head_work_item const& item, std::int32_t row,
                                                          std::int32_t column) const {
    std::int64_t const number =
        std::int64_t{item.part} * tiles() + index_in_triangle(item.row, item.column, tiles_across());
    return number * tile_elements + row * tile + column;
  }

 private:
  [[nodiscard]] TESSERA_FN constexpr head_coordinate coordinate_of(std::int32_t channel, head_work_item const& item,
                                                                   std::int32_t token) const {
    return {channel % channels, first + item.part * part_tokens + token, channel / channels};
  }
};

/// The schedule of the products of keys and directions.
struct projection_schedule {
  static constexpr std::int32_t tile = 256;  ///< tokens of a tile

  std::int32_t channels;  ///< channels of a head
  std::int32_t width;     ///< channels of all heads
  std::int32_t tokens;    ///< tokens of the keys

  /// The work items: tiles of tokens.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return divide_up(tokens, tile); }
  /// Work item number `index`.
  [[nodiscard]] TESSERA_FN constexpr head_work_item at(std::int32_t index) const {
    return {index, 0, 0, divide_up(width, head_box)};
  }
  /// The coordinates in a of 64 tokens, from token `row` of the tile on, by 64 channels.
  [[nodiscard]] TESSERA_FN constexpr head_coordinate a_coordinate(head_work_item const& item, std::int32_t row,
                                                                  std::int32_t k_tile) const {
    std::int32_t const channel = k_tile * head_box;
    return {channel % channels, item.row * tile + row, channel / channels};
  }
  /// The coordinates in b, the directions, which are one head: rows are channels, from channel `depth` of the k-tile
  /// on.
  [[nodiscard]] TESSERA_FN constexpr head_coordinate b_coordinate(head_work_item const&, std::int32_t column,
                                                                  std::int32_t depth, std::int32_t k_tile) const {
    return {column, k_tile * head_box + depth, 0};
  }
  /// The coordinates in a of the next k-tile, without a division.
  [[nodiscard]] TESSERA_FN constexpr head_coordinate next_a(head_coordinate at) const {
    bool const is_last = at.column + head_box == channels;
    return {is_last ? 0 : at.column + head_box, at.row, is_last ? at.head + 1 : at.head};
  }
  /// The coordinates in b of the next k-tile, without a division.
  [[nodiscard]] TESSERA_FN constexpr head_coordinate next_b(head_coordinate at) const {
    return {at.column, at.row + head_box, 0};
  }
};

}  // namespace v0
}  // namespace tessera
