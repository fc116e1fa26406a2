// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `key_band` tells which tiles of keys a block of queries needs, `attention_schedule` in which order blocks are taken.
///
///     key_band const band = key_band::causal(1000, 1500);              // query i sees keys 0 to i + 500
///     tile_range const range = band.tiles({128, 256}, 1500);           // of queries 128 to 255: [0, 6)
///     range.end;                                                       // 6; of these, [0, 4) without a mask
///     attention_schedule const schedule{.heads = 32, .blocks = 8, .section = 8, .longest_first = true};
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/view/attention_mask.hpp>

namespace tessera {
inline namespace v0 {

inline constexpr std::int32_t attention_tile_keys = 128;  ///< keys of a tile

/// The rows of a head from `begin` to `end` - 1.
struct row_range {
  std::int32_t begin;  ///< the first row
  std::int32_t end;    ///< one past the last row
};

/// The tiles of keys from `begin` to `end` - 1. Those from `full_begin` to `full_end` - 1 need no mask: all rows see
/// all of their keys.
struct tile_range {
  std::int32_t begin;       ///< the first tile
  std::int32_t end;         ///< one past the last tile
  std::int32_t full_begin;  ///< the first tile without a mask
  std::int32_t full_end;    ///< one past the last tile without a mask

  /// How many tiles the range has.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return end - begin; }
  /// The tiles of the range from `first` to `beyond` - 1.
  [[nodiscard]] TESSERA_FN constexpr tile_range between(std::int32_t first, std::int32_t beyond) const {
    return {clamp(begin, first, beyond), clamp(end, first, beyond), clamp(full_begin, first, beyond),
            clamp(full_end, first, beyond)};
  }
};

/// A mask as a band: query i sees the keys from i + first to i + last, as far as they exist.
struct key_band {
  static constexpr std::int32_t unlimited = 1 << 30;  ///< all keys on that side
  std::int32_t first = -unlimited;                    ///< the first key seen, relative to the query's number
  std::int32_t last = unlimited;                      ///< the last key seen, relative to the query's number

  /// The band of a mask of fewer than 2^29 queries and keys.
  [[nodiscard]] TESSERA_FN static constexpr key_band of(attention_mask const& mask) {
    std::int64_t const own = mask.keys - mask.queries;
    std::int64_t const most = unlimited;
    return {static_cast<std::int32_t>(mask.left < 0 ? -most : clamp(own - mask.left, -most, most)),
            static_cast<std::int32_t>(mask.right < 0 ? most : min(own + min(mask.right, most), most))};
  }
  /// The band of a causal mask: the last query sees up to the last key.
  [[nodiscard]] TESSERA_FN static constexpr key_band causal(std::int32_t queries, std::int32_t keys) {
    return {-unlimited, keys - queries};
  }
  /// The band of the same mask where each query's own key lies `by` keys further on.
  [[nodiscard]] TESSERA_FN constexpr key_band moved(std::int32_t by) const {
    return {first == -unlimited ? first : max(first + by, -unlimited),
            last == unlimited ? last : min(last + by, unlimited)};
  }

  /// The tiles of `size` keys that some rows see; empty if there are no rows, or no key to see.
  [[nodiscard]] TESSERA_FN constexpr tile_range tiles(row_range rows, std::int32_t keys,
                                                      std::int32_t size = attention_tile_keys) const {
    std::int32_t const last_row = rows.end - 1;
    std::int32_t const begin = clamp(rows.begin + first, 0, keys);
    std::int32_t const end = clamp(last_row + last + 1, 0, keys);
    if (rows.begin >= rows.end || begin >= end) {
      return {0, 0, 0, 0};
    }
    tile_range range{begin / size, divide_up(end, size), 0, 0};
    range.full_begin = clamp(divide_up(clamp(last_row + first, 0, keys), size), range.begin, range.end);
    range.full_end = clamp(clamp(rows.begin + last + 1, 0, keys) / size, range.full_begin, range.end);
    return range;
  }
};

/// A work item: a block of queries of one head.
struct attention_work_item {
  std::int32_t head;   ///< query head, counted over all sequences
  std::int32_t block;  ///< number of the block of queries in the head
};

/// The order of work items. Heads come in sections whose keys and values fit into a cache; within a section all blocks
/// come, block by block, or head by head.
struct attention_schedule {
  std::int32_t heads;    ///< query heads of all sequences
  std::int32_t blocks;   ///< blocks of queries of a head
  std::int32_t section;  ///< heads of a section
  bool longest_first;    ///< whether the last blocks of all heads of a section come first

  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return heads * blocks; }
  /// The work item number `index` of the order.
  [[nodiscard]] TESSERA_FN constexpr attention_work_item at(std::int32_t index) const {
    if (!longest_first) {
      return {index / blocks, index % blocks};
    }
    std::int32_t const work_items = section * blocks;
    std::int32_t const which = index / work_items;
    std::int32_t const within = index - which * work_items;
    std::int32_t const together = min(section, heads - which * section);
    std::int32_t const row = within / together;
    return {which * section + (within - row * together), blocks - 1 - row};
  }
};

}  // namespace v0
}  // namespace tessera
