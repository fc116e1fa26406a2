// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Where a group of attention by row words is: `query_block`, its block of queries, and `key_cursor`, its place in the
/// tiles of keys that these see.
///
///     detail::key_cursor<128, 64> next(block, list, splits, split);     // 64 keys at a time of tiles of 128
///     for (; next.exists(); next.move_on(block, list)) {
///       std::int64_t const first_key = next.key();
///       ...
///     }
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/view/attention_block_list.hpp>
#include <tessera/view/attention_mask.hpp>
#include <tessera/view/attention_shape.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A block of `Rows` queries of a head.
template <int Rows>
struct query_block {
  std::int64_t sequence;
  std::int64_t head;
  std::int64_t key_head;
  std::int64_t first_query;
  attention_mask mask;

  /// How many blocks a head has.
  TESSERA_FN static constexpr std::int64_t count(attention_shape const& shape) {
    return divide_up(shape.queries, std::int64_t{Rows});
  }
  /// Block number `which` of all heads. The last ones of a head come first, which see the most keys under a causal
  /// mask.
  TESSERA_FN static query_block of(attention_shape const& shape, std::int64_t which) {
    std::int64_t const blocks = count(shape);
    std::int64_t const head = which / blocks % shape.query_heads;
    return {which / blocks / shape.query_heads,
            head,
            head / (shape.query_heads / shape.key_heads),
            (blocks - 1 - which % blocks) * Rows,
            {}};
  }
  /// The number of the block in its head.
  TESSERA_FN std::int64_t number() const { return first_query / Rows; }
  /// The keys that some query of the block sees.
  TESSERA_FN key_interval seen() const {
    std::int64_t const last = min(first_query + Rows, mask.queries) - 1;
    return {mask.of(first_query).first, last < first_query ? 0 : mask.of(last).end};
  }
  /// Whether all queries of the block exist and see all keys from `first` to `end` - 1.
  TESSERA_FN bool all_see(std::int64_t first, std::int64_t end) const {
    key_interval const of_last = mask.of(first_query + Rows - 1);
    return of_last.first <= first && of_last.end > 0 && mask.of(first_query).end >= end;
  }
};

/// A place in the tiles of `TileKeys` keys of a split: all that a query of the block sees, or those of them that a list
/// has. `Columns` keys are taken at a time.
template <int TileKeys, int Columns>
class key_cursor {
 public:
  static_assert(TileKeys % Columns == 0);

  /// The first keys of split number `split` of so many.
  template <int Rows>
  TESSERA_FN key_cursor(query_block<Rows> const& block, attention_block_list const& list, std::int64_t splits,
                        std::int64_t split) {
    key_interval const seen = block.seen();
    lowest_ = static_cast<std::int32_t>(seen.first / TileKeys);
    beyond_ = static_cast<std::int32_t>(divide_up(seen.end, std::int64_t{TileKeys}));
    bool const has_list = list.counts.data != nullptr;
    std::int64_t const begin = has_list ? 0 : lowest_;
    std::int64_t const count = has_list ? list.count(block.sequence, block.head, block.number()) : beyond_ - lowest_;
    std::int64_t const each = divide_up(max(count, std::int64_t{0}), splits);
    index_ = static_cast<std::int32_t>(begin + split * each);
    end_ = static_cast<std::int32_t>(begin + min((split + 1) * each, count));
    skip_unseen(block, list);
  }
  /// Whether there are keys here.
  [[nodiscard]] TESSERA_FN bool exists() const { return index_ < end_; }
  /// The first of the keys here.
  [[nodiscard]] TESSERA_FN std::int64_t key() const { return key_; }
  /// Goes on to the next keys.
  template <int Rows>
  TESSERA_FN void move_on(query_block<Rows> const& block, attention_block_list const& list) {
    key_ += Columns;
    if (key_ % TileKeys == 0) {
      ++index_;
      skip_unseen(block, list);
    }
  }

 private:
  /// Passes over tiles of the list that no query sees, to the first key of the next one.
  template <int Rows>
  TESSERA_FN void skip_unseen(query_block<Rows> const& block, attention_block_list const& list) {
    for (; exists(); ++index_) {
      std::int64_t const tile =
          list.counts.data != nullptr ? list.tiles(block.sequence, block.head, block.number(), index_) : index_;
      if (tile >= lowest_ && tile < beyond_) {
        key_ = tile * TileKeys;
        return;
      }
    }
  }

  // Keys of 2^31 tiles are more than any memory holds.
  std::int32_t index_ = 0;   // number of the tile among all, or in the list
  std::int32_t end_ = 0;     // one past the last number
  std::int32_t lowest_ = 0;  // the first tile that a query sees
  std::int32_t beyond_ = 0;  // one past the last tile that a query sees
  std::int64_t key_ = 0;     // the first of the keys that are taken at a time
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
