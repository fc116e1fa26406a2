// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Quest (arXiv 2406.10774): decoding attention that reads the pages of 16 keys with the highest upper bounds of
/// scores. A page is known by the largest and the smallest value of each channel of its keys.
///
///     bound of a page = sum_c max(q_c low_c, q_c high_c) = max(q, 0) . high + min(q, 0) . low
///
/// `score_pages` has it as a product; the best of the four query heads of a key head counts. Bytes a key head: 4
/// channels for each page, 64 for each page taken; all of attention reads 64 channels a page.
#pragma once

#include <tessera/select/quest.hpp>
#include <tessera/tile/top_k.hpp>

#include "decode_heads.hpp"

namespace tessera_examples {

struct quest_heads {
  static constexpr int page = 16, channels = 128, heads = 4;  ///< query heads of a key head
  matrix_view<bfloat16 const> queries;                        ///< key heads * heads x channels
  view<bfloat16 const, 3> keys, values;                       ///< key head x token x channel
  view<bfloat16, 3> boxes;        ///< key head x page x channels' largest and then channels' smallest values
  matrix_view<float> scores;      ///< key head x page
  std::int64_t taken;             ///< pages that are attended, up to 128
  matrix_view<bfloat16> results;  ///< as queries
};

/// The box around the keys of a page. A lane takes a channel.
struct summarize_pages : quest_heads {
  static constexpr int lanes = channels;
  struct scratch_type {};
  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which / boxes.extent(1), first = which % boxes.extent(1) * page;
    auto const summary = quest_selector<page>{}.summary();
    for (int lane : group) {
      auto box = summary.identity();
      for (std::int64_t token = first; token < min(first + page, keys.extent(1)); ++token) {
        summary.push(box, load(keys(head, token, lane)));
      }
      boxes(head, first / page, lane) = store<bfloat16>(box.maximum);  // exact: these are keys' values
      boxes(head, first / page, channels + lane) = store<bfloat16>(box.minimum);
    }
  }
};

/// The bounds of 64 pages of a key head: rows of a product, whose columns are the heads, four times.
struct score_pages : quest_heads {
  static constexpr int lanes = 64, pages = 64;
  struct scratch_type {
    staged_tile<bfloat16, 16, 2 * channels> signed_queries;  ///< max(q, 0), min(q, 0)
    staged_tile<bfloat16, pages, 2 * channels> boxes;
  };
  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    using tile = row_tile<bfloat16, shape<pages, 16, 16>, G>;
    std::int64_t const tiles = divide_up(boxes.extent(1), std::int64_t{pages});
    std::int64_t const head = which / tiles, first = which % tiles * pages;
    for (int lane : group) {
      for (int i = lane; i < 16 * 2 * channels; i += lanes) {
        int const row = i / (2 * channels), column = i % (2 * channels);
        float const q = load(queries(head * heads + row % heads, column % channels));
        scratch.signed_queries(row, column) = store<bfloat16>(column < channels ? maximum(q, 0.0F) : minimum(q, 0.0F));
      }
    }
    dense<bfloat16>{boxes[head]}.load(group, scratch.boxes, first, 0);  // ends with a sync
    typename tile::sum_tile bounds;
    tile::clear(group, bounds);
    multiply_staged<tile>(group, scratch.boxes, scratch.signed_queries, bounds);
    each_largest<tile>(group, bounds, boxes.extent(1) - first,
                       [&, this](int row, float best) { scores(head, first + row) = best; });
  }
};

/// Attends to the tokens of the best pages of a key head.
struct attend_pages : quest_heads {
  static constexpr int lanes = 256;
  struct scratch_type : decode_scratch<keys_by_tokens> {
    std::int64_t order[128 * page];
    top_k_scratch digits;
  };
  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t head, scratch_type& scratch) const {
    auto const key = [&, this](std::int64_t i) { return ordered_key(scores(head, i)); };
    auto const list = [&](std::int64_t rank, std::int64_t i) {
      for (int t = 0; t < page; ++t) {
        scratch.order[rank * page + t] = i * page + t;
      }
    };
    std::int64_t const all = top_k(group, key, scores.extent(1), taken, scratch.digits, list) * page;
    gathered<bfloat16> const k{keys[head], {scratch.order, all}}, v{values[head], {scratch.order, all}};
    decode_heads<G> attention(group, queries, head, scratch);  // has a sync
    attention.attend(group, k, v, scratch, [&, this](std::int64_t i) { return scratch.order[i] < keys.extent(1); });
    attention.finish(group, head, results);
  }
};

}  // namespace tessera_examples
