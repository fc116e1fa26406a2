// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What there is to do in the two products of a prompt's keys that program/subspace/key_products.cuh computes, and
/// where their operands begin:
///
///     gram_works          K^T K in tiles of 256 x 256 on and above the diagonal, 2048 tokens at a time
///     projection_works    K Q in tiles of 256 tokens, over all channels
///
/// Keys are heads x tokens x channels; channel c of all heads' is channel c % channels of head c / channels. Boxes have
/// 64 tokens and 64 channels, so a head has a multiple of 64 channels. A tile is computed by a cluster of two thread
/// blocks, 128 rows each.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/tile/head_place.hpp>
#include <tessera/tile/triangle.hpp>

namespace tessera {
inline namespace v0 {

/// A tile, over some of the depth.
struct head_work {
  std::int32_t row;     ///< of tiles
  std::int32_t column;  ///< of tiles
  std::int32_t part;    ///< of the depth
  std::int32_t pieces;  ///< of 64 of the depth
};

/// Rows, and columns, of a box.
inline constexpr int head_box = 64;

/// The products of channels with each other, of some of the tokens.
struct gram_works {
  static constexpr std::int32_t tile = 256;                                 ///< channels a side
  static constexpr std::int32_t part_tokens = 2048;                         ///< summed in registers
  static constexpr std::int64_t tile_elements = std::int64_t{tile} * tile;  ///< of the sums of a tile

  std::int32_t channels;  ///< of a head
  std::int32_t width;     ///< channels of all heads
  std::int32_t first;     ///< token
  std::int32_t tokens;    ///< from there on, in parts of which the last may be shorter

  /// Parts whose sums are in memory at a time: with 10 tiles (1024 channels) 13, which are two rounds of 66 clusters
  /// less two, in 33 MiB, so that they are still in L2 when they are added up; never more than 32.
  [[nodiscard]] TESSERA_FN static constexpr std::int64_t parts_at_a_time(std::int64_t width) {
    constexpr std::int64_t most_tiles = 132;
    std::int64_t const fitting = most_tiles / triangle_size(divide_up(width, std::int64_t{tile}));
    return max(min(fitting, std::int64_t{32}), std::int64_t{1});
  }
  /// Elements of the sums of a part.
  [[nodiscard]] TESSERA_FN static constexpr std::int64_t part_elements(std::int64_t width) {
    return triangle_size(divide_up(width, std::int64_t{tile})) * tile_elements;
  }

  /// Parts of the tokens.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t parts() const { return divide_up(tokens, part_tokens); }
  /// Tiles a side.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t tiles_across() const { return divide_up(width, tile); }
  /// Tiles on and above the diagonal.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t tiles() const {
    return static_cast<std::int32_t>(triangle_size(tiles_across()));
  }
  /// Tiles of all parts.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return parts() * tiles(); }
  /// Work number `index`: all tiles of a part, then of the next.
  [[nodiscard]] TESSERA_FN constexpr head_work at(std::int32_t index) const {
    std::int32_t const part = index / tiles();
    triangle_place const place = place_in_triangle(index % tiles(), tiles_across());
    std::int32_t const left = min(tokens - part * part_tokens, part_tokens);
    return {place.row, place.column, part, divide_up(left, head_box)};
  }

  /// The place in a of 64 tokens by 64 channels, from channel `row` of the tile's rows on.
  [[nodiscard]] TESSERA_FN constexpr head_place a_place(head_work const& work, std::int32_t row,
                                                        std::int32_t piece) const {
    return place_of(work.row * tile + row, work, piece * head_box);
  }
  /// The place in b of tokens, from token `depth` of the piece on, by 64 channels, from channel `column` of the tile's
  /// columns on.
  [[nodiscard]] TESSERA_FN constexpr head_place b_place(head_work const& work, std::int32_t column, std::int32_t depth,
                                                        std::int32_t piece) const {
    return place_of(work.column * tile + column, work, piece * head_box + depth);
  }

  /// From a piece's place in a to that of the next, without a division.
  [[nodiscard]] TESSERA_FN constexpr head_place next_a(head_place place) const {
    return {place.column, place.row + head_box, place.head};
  }
  /// From a piece's place in b to that of the next, without a division.
  [[nodiscard]] TESSERA_FN constexpr head_place next_b(head_place place) const { return next_a(place); }

  /// Where in the parts' sums an element of a tile is.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t element(head_work const& work, std::int32_t row,
                                                          std::int32_t column) const {
    std::int64_t const number =
        std::int64_t{work.part} * tiles() + index_in_triangle(work.row, work.column, tiles_across());
    return number * tile_elements + row * tile + column;
  }

 private:
  [[nodiscard]] TESSERA_FN constexpr head_place place_of(std::int32_t channel, head_work const& work,
                                                         std::int32_t token) const {
    return {channel % channels, first + work.part * part_tokens + token, channel / channels};
  }
};

/// The products of keys and directions.
struct projection_works {
  static constexpr std::int32_t tile = 256;  ///< tokens

  std::int32_t channels;  ///< of a head
  std::int32_t width;     ///< channels of all heads
  std::int32_t tokens;    ///< of the keys

  /// Tiles of tokens.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return divide_up(tokens, tile); }
  /// Work number `index`.
  [[nodiscard]] TESSERA_FN constexpr head_work at(std::int32_t index) const {
    return {index, 0, 0, divide_up(width, head_box)};
  }
  /// The place in a of 64 tokens, from token `row` of the tile on, by 64 channels.
  [[nodiscard]] TESSERA_FN constexpr head_place a_place(head_work const& work, std::int32_t row,
                                                        std::int32_t piece) const {
    std::int32_t const channel = piece * head_box;
    return {channel % channels, work.row * tile + row, channel / channels};
  }
  /// The place in b, directions, which are one head: rows are channels, from channel `depth` of the piece on.
  [[nodiscard]] TESSERA_FN constexpr head_place b_place(head_work const&, std::int32_t column, std::int32_t depth,
                                                        std::int32_t piece) const {
    return {column, piece * head_box + depth, 0};
  }
  /// From a piece's place in a to that of the next, without a division.
  [[nodiscard]] TESSERA_FN constexpr head_place next_a(head_place place) const {
    bool const is_last = place.column + head_box == channels;
    return {is_last ? 0 : place.column + head_box, place.row, is_last ? place.head + 1 : place.head};
  }
  /// From a piece's place in b to that of the next, without a division.
  [[nodiscard]] TESSERA_FN constexpr head_place next_b(head_place place) const {
    return {place.column, place.row + head_box, 0};
  }
};

}  // namespace v0
}  // namespace tessera
