// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `few_query_schedule`: the schedule of attention of few queries. A work item (`few_query_work_item`) is 16 rows of a
/// key head and a split of its keys. Rows are the queries of all query heads that share the key head, head after head.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/view/attention_mask.hpp>

namespace tessera {
inline namespace v0 {

/// A work item: up to 16 rows of a key head, and a split of its keys.
struct few_query_work_item {
  std::int64_t sequence;    ///< number of the sequence in the batch
  std::int64_t key_head;    ///< number of the key head in the sequence
  std::int64_t split;       ///< number of the split of the keys
  std::int64_t first_row;   ///< the first of the rows of the key head
  attention_mask mask;      ///< mask of the sequence
  std::int64_t first_tile;  ///< the first tile of the split
  std::int32_t tiles;       ///< tiles of 128 keys of the split
};

/// The query that a row is.
struct few_query_row {
  std::int64_t head;   ///< number of the query head in the sequence
  std::int64_t query;  ///< number of the query in the sequence
  bool is_inside;      ///< whether there is such a row
};

/// The schedule. The numbers of rows and of work items must fit into 31 bits, and so must the tiles of a sequence times
/// the splits.
struct few_query_schedule {
  static constexpr std::int64_t rows = few_queries;  ///< rows of a work item

  attention_shape shape;
  sequence_lengths query_lengths;
  sequence_lengths key_lengths;
  std::int64_t left;         ///< attention_mask::left
  std::int64_t right;        ///< attention_mask::right
  fast_divisor by_splits;    ///< divides by the number of splits of a key head's keys
  fast_divisor by_blocks;    ///< divides by the number of blocks of 16 rows of a key head
  fast_divisor by_heads;     ///< divides by the number of key heads of a sequence
  fast_divisor by_batch;     ///< divides by the number of sequences
  fast_divisor by_queries;   ///< divides by the number of queries of a sequence
  std::uint32_t head_group;  ///< query heads of a key head

  /// The schedule of a batch that is not empty.
  [[nodiscard]] static constexpr few_query_schedule of(attention_shape const& s, sequence_lengths const& query_lengths,
                                                       sequence_lengths const& key_lengths, std::int64_t left,
                                                       std::int64_t right, std::int64_t splits) {
    auto const divisor = [](std::int64_t number) { return fast_divisor::of(static_cast<std::uint32_t>(number)); };
    std::int64_t const group = s.query_heads / s.key_heads;
    return {s,
            query_lengths,
            key_lengths,
            left,
            right,
            divisor(splits),
            divisor(divide_up(group * s.queries, rows)),
            divisor(s.key_heads),
            divisor(s.batch),
            divisor(s.queries),
            static_cast<std::uint32_t>(group)};
  }

  /// The number of splits of a key head's keys.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t splits() const { return by_splits.divisor; }
  /// The number of all work items.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t count() const {
    return by_splits.divisor * by_batch.divisor * by_heads.divisor * by_blocks.divisor;
  }

  /// The work item with this number. Work items that read the same keys follow each other.
  [[nodiscard]] TESSERA_FN constexpr few_query_work_item at(std::uint32_t work) const {
    std::uint32_t const head = by_blocks.quotient(work);
    std::uint32_t const sequence = by_heads.quotient(head);
    few_query_work_item found{};
    found.first_row = (work - head * by_blocks.divisor) * rows;
    found.key_head = head - sequence * by_heads.divisor;
    found.split = by_batch.quotient(sequence);
    found.sequence = sequence - static_cast<std::uint32_t>(found.split) * by_batch.divisor;
    found.mask = {length_of(query_lengths, found.sequence, shape.queries),
                  length_of(key_lengths, found.sequence, shape.keys), left, right};
    find_tiles(found);
    return found;
  }

  /// The query that row `row` of a work item is.
  [[nodiscard]] TESSERA_FN constexpr few_query_row row_of(few_query_work_item const& work, int row) const {
    std::uint32_t const which = static_cast<std::uint32_t>(work.first_row) + static_cast<std::uint32_t>(row);
    std::uint32_t const of_group = by_queries.quotient(which);
    return {work.key_head * head_group + of_group, which - of_group * by_queries.divisor, of_group < head_group};
  }

 private:
  /// Finds the tiles of a split: those that some row sees, in splits whose lengths differ by one at most.
  TESSERA_FN constexpr void find_tiles(few_query_work_item& work) const {
    std::int64_t const lowest = work.mask.of(0).first / attention_padding;
    std::int64_t const seen = work.mask.queries > 0 ? work.mask.of(work.mask.queries - 1).end : 0;
    std::int64_t const found = max(divide_up(seen, attention_padding) - lowest, std::int64_t{0});
    auto const count = static_cast<std::uint32_t>(found);
    auto const split = static_cast<std::uint32_t>(work.split);
    std::uint32_t const begin = by_splits.quotient(split * count);
    work.first_tile = lowest + begin;
    work.tiles = static_cast<std::int32_t>(by_splits.quotient((split + 1) * count) - begin);
  }
};

}  // namespace v0
}  // namespace tessera
