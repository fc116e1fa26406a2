// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `few_query_works`: how attention of few queries is shared out. A work is 16 rows of a key head and a share of its
/// keys. Rows are the queries of all query heads that share the key head, head after head.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/attention_mask.hpp>
#include <tessera/program/attention_operands.hpp>

namespace tessera {
inline namespace v0 {

/// Up to 16 rows of a key head, and a share of its keys.
struct few_query_work {
  std::int64_t sequence;    ///< of the batch
  std::int64_t key_head;    ///< of the sequence
  std::int64_t share;       ///< of the keys
  std::int64_t first_row;   ///< among the rows of the key head
  attention_mask mask;      ///< of the sequence
  std::int64_t first_tile;  ///< of the share
  std::int32_t tiles;       ///< of 128 keys
};

/// Whose query a row is.
struct few_query_row {
  std::int64_t head;   ///< of the queries
  std::int64_t query;  ///< of the sequence
  bool is_inside;      ///< else there is no such row
};

/// Numbers of rows and works have 31 bits.
struct few_query_works {
  static constexpr std::int64_t rows = few_queries;  ///< of a work

  attention_shape shape;
  sequence_lengths query_lengths;
  sequence_lengths key_lengths;
  std::int64_t left;    ///< see attention_mask
  std::int64_t right;   ///< likewise
  std::int64_t shares;  ///< of a key head's keys

  /// Works in all.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t count() const {
    return static_cast<std::uint32_t>(shares * shape.batch * shape.key_heads) * row_blocks();
  }

  /// The work with this number; those that read the same keys follow each other.
  [[nodiscard]] TESSERA_FN constexpr few_query_work at(std::uint32_t work) const {
    const auto heads = static_cast<std::uint32_t>(shape.key_heads);
    const auto batch = static_cast<std::uint32_t>(shape.batch);
    const std::uint32_t head = work / row_blocks();
    few_query_work found{};
    found.first_row = (work - head * row_blocks()) * rows;
    found.key_head = head % heads;
    found.sequence = head / heads % batch;
    found.share = head / heads / batch;
    found.mask = {length_of(query_lengths, found.sequence, shape.queries),
                  length_of(key_lengths, found.sequence, shape.keys), left, right};
    find_tiles(found);
    return found;
  }

  /// Row `row` of a work.
  [[nodiscard]] TESSERA_FN constexpr few_query_row row_of(few_query_work const& work, int row) const {
    const auto queries = static_cast<std::uint32_t>(shape.queries);
    const std::uint32_t which = static_cast<std::uint32_t>(work.first_row) + static_cast<std::uint32_t>(row);
    return {work.key_head * head_group() + which / queries, which % queries, which < head_group() * queries};
  }

 private:
  /// Query heads of a key head.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t head_group() const {
    return static_cast<std::uint32_t>(shape.query_heads) / static_cast<std::uint32_t>(shape.key_heads);
  }
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t row_blocks() const {
    return static_cast<std::uint32_t>(divide_up(std::int64_t{head_group()} * shape.queries, rows));
  }

  /// Those that any row sees, in parts of equal size, of which the last may be smaller.
  TESSERA_FN constexpr void find_tiles(few_query_work& work) const {
    const std::int64_t lowest = work.mask.of(0).first / attention_padding;
    const std::int64_t seen = work.mask.queries > 0 ? work.mask.of(work.mask.queries - 1).end : 0;
    const std::int64_t count = max(divide_up(seen, attention_padding) - lowest, std::int64_t{0});
    const std::int64_t each = divide_up(static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(shares));
    const std::int64_t begin = min(work.share * each, count);
    work.first_tile = lowest + begin;
    work.tiles = static_cast<std::int32_t>(min(begin + each, count) - begin);
  }
};

}  // namespace v0
}  // namespace tessera
