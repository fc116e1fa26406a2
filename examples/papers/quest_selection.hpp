// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Quest (arXiv 2406.10774): decoding attention that reads the pages of 16 keys with the highest upper bounds of
/// scores. A page is known by the smallest and the largest value of each channel of its keys.
///
///     bound of a page = sum_c max(q_c low_c, q_c high_c) = max(q, 0) . high + min(q, 0) . low
///
/// That is two products, which `score_pages` has on tensor cores; the best of the four query heads of a key head
/// counts. `attend_pages` finds the best pages by the library's top_k and attends to their tokens, which `gathered`
/// loads. Bytes a key head: 4 channels for each page, 64 channels for each page taken; all of attention reads 64
/// channels a page.
#pragma once

#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/select/quest.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/top_k.hpp>

#include "words.hpp"

namespace tessera_examples {

struct quest_heads {
  static constexpr int page = 16, channels = 128, heads = 4;  ///< query heads of a key head
  matrix_view<bfloat16 const> queries;                        ///< key heads * heads x channels
  view<bfloat16 const, 3> keys, values;                       ///< key head x token x channel
  view<bfloat16, 3> low, high;                                ///< key head x page x channel
  matrix_view<float> scores;                                  ///< key head x page
  std::int64_t taken;                                         ///< pages that are attended, up to 128
  matrix_view<bfloat16> results;                              ///< as queries
};

/// The box around the keys of a page. A lane takes a channel.
struct summarize_pages : quest_heads {
  static constexpr int lanes = channels;
  struct scratch_type {};
  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which / low.extent(1), first = which % low.extent(1) * page;
    quest_selector<page> const selector;
    for (int lane : group) {
      auto box = selector.summary().identity();
      for (std::int64_t token = first; token < min(first + page, keys.extent(1)); ++token) {
        selector.summary().push(box, load(keys(head, token, lane)));
      }
      low(head, first / page, lane) = store<bfloat16>(box.minimum);  // exact: these are keys' values
      high(head, first / page, lane) = store<bfloat16>(box.maximum);
    }
  }
};

/// The bounds of 64 pages of a key head.
struct score_pages : quest_heads {
  static constexpr int lanes = 64, pages = 64;
  struct scratch_type {
    staged_tile<bfloat16, 16, channels> positive, negative;  ///< of the queries
    staged_tile<bfloat16, pages, channels> low, high;
    float bounds[16 * pages];
  };
  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    using tile = gemm_tile<bfloat16, shape<16, pages, 16>, G>;
    std::int64_t const tiles = divide_up(low.extent(1), std::int64_t{pages});
    std::int64_t const head = which / tiles, first = which % tiles * pages;
    for (int lane : group) {
      for (int i = lane; i < 16 * channels; i += lanes) {
        float const q = i < heads * channels ? load(queries(head * heads + i / channels, i % channels)) : 0.0F;
        scratch.positive(i / channels, i % channels) = store<bfloat16>(maximum(q, 0.0F));
        scratch.negative(i / channels, i % channels) = store<bfloat16>(minimum(q, 0.0F));
      }
    }
    dense<bfloat16>{low[head]}.load(group, scratch.low, first, 0);
    dense<bfloat16>{high[head]}.load(group, scratch.high, first, 0);  // ends with a sync
    typename tile::sum_tile bounds;
    tile::clear(group, bounds);
    multiply_staged<tile>(group, scratch.positive, scratch.high, bounds);
    multiply_staged<tile>(group, scratch.negative, scratch.low, bounds);
    tile::store(group, bounds, scratch.bounds, pages);
    group.sync();
    for (int lane : group) {
      float best = -infinity;
      for (int h = 0; h < heads; ++h) {
        best = maximum(best, scratch.bounds[h * pages + lane]);
      }
      if (first + lane < low.extent(1)) {
        scores(head, first + lane) = best;
      }
    }
  }
};

/// Attends to the tokens of the best pages of a key head.
struct attend_pages : quest_heads {
  static constexpr int lanes = 256, tokens = 128, most_tokens = 128 * page;
  struct scratch_type {
    std::int64_t order[most_tokens];
    staged_tile<bfloat16, 16, channels> queries;
    union {
      top_k_scratch digits;
      struct {
        staged_tile<bfloat16, tokens, channels> keys, values;
        staged_tile<bfloat16, 16, tokens> weights;
        float scores[16 * tokens];
      } tiles;
    };
  };
  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t head, scratch_type& scratch) const {
    using score_tile = gemm_tile<bfloat16, shape<16, tokens, 16>, G>;
    using result_tile = gemm_tile<bfloat16, shape<16, channels, 16>, G>;
    auto const key = [&](std::int64_t i) { return ordered_key(scores(head, i)); };
    auto const list = [&](std::int64_t rank, std::int64_t i) {
      for (int t = 0; t < page; ++t) {
        scratch.order[rank * page + t] = i * page + t;
      }
    };
    std::int64_t const all = top_k(group, key, scores.extent(1), taken, scratch.digits, list) * page;
    dense<bfloat16>{queries}.load(group, scratch.queries, head * heads, 0);  // ends with a sync
    softmax_of_heads<G> softmax;
    softmax.begin(group);
    typename result_tile::sum_tile totals;
    result_tile::clear(group, totals);
    for (std::int64_t first = 0; first < all; first += tokens) {
      typename score_tile::sum_tile sums;
      score_tile::clear(group, sums);
      gathered<bfloat16>{keys[head], {scratch.order, all}}.load(group, scratch.tiles.keys, first, 0);
      gathered<bfloat16>{values[head], {scratch.order, all}}.load(group, scratch.tiles.values, first, 0);
      multiply_staged<score_tile>(group, scratch.queries, scratch.tiles.keys, sums);
      score_tile::store(group, sums, scratch.tiles.scores, tokens);
      group.sync();
      per_lane<head_numbers, G> of_token;
      for (int lane : group) {
        bool const is_there =
            lane < min(all - first, std::int64_t{tokens}) && scratch.order[first + lane] < keys.extent(1);
        for (int h = 0; h < heads; ++h) {
          of_token[lane].of[h] = is_there ? in_base_2 * scratch.tiles.scores[h * tokens + lane] : -infinity;
        }
      }
      head_numbers const factors = softmax.turn(group, of_token);  // scores become weights
      for (int lane : group) {
        for (int h = 0; h < heads && lane < tokens; ++h) {
          scratch.tiles.weights(h, lane) = store<bfloat16>(of_token[lane].of[h]);
        }
      }
      group.sync();
      result_tile::each(group, totals, [&](int h, int, float& total) { total *= factors.of[h % heads]; });
      multiply_rows<result_tile>(group, scratch.tiles.weights, scratch.tiles.values, totals);
      group.sync();
    }
    head_numbers const sum = reduce(group, softmax.sums, sum_of_heads{});
    result_tile::each(group, totals, [&](int h, int channel, float total) {
      if (h < heads) {
        results(head * heads + h, channel) = store<bfloat16>(total / sum.of[h]);
      }
    });
  }
  static constexpr float in_base_2 = 1.4426950408889634F / 11.313708498984761F;  ///< log2(e) / sqrt(channels)
};

}  // namespace tessera_examples
