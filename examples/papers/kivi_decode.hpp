// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// KIVI (arXiv 2402.02750): decoding attention over a cache of 2 or 4 bits. Codes run from the smallest value of a
/// group to the largest. A group is 32 neighbouring tokens of a channel of keys, so that an outlying channel spoils no
/// other, or 32 neighbouring channels of a token's value. The newest tokens are in bf16.
///
///     o = sum_t w_t v_t / sum_t w_t      w_t = exp(q . k_t / sqrt(channels))
///
/// K^T and V of a key head are one kind of TileSource, `packed_codes`, and the newest tokens are `dense`: the body
/// takes both. Bytes: channels (Bits / 4 + 1 / 4) a token and key head, with 2 bits 3/16 of bf16. FLOPs: 4 channels a
/// token and query head. A group of lanes takes a key head with its queries, so that many sequences fill a GPU.
#pragma once

#include <tessera/core/math.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/source/dense.hpp>

#include "packed_codes.hpp"
#include "words.hpp"

namespace tessera_examples {

template <int Bits>
struct kivi_decode {
  static constexpr int lanes = 128, tokens = 128, channels = 128, heads = 4, blocks_per_multiprocessor = 3;
  struct scratch_type {
    staged_tile<bfloat16, 16, channels> queries;  ///< of 16 rows the heads' are used, here and in `weights`
    union {
      staged_tile<bfloat16, channels, tokens> keys;
      staged_tile<bfloat16, tokens, channels> values;
    };
    staged_tile<bfloat16, 16, tokens> weights;
    float scores[16 * tokens];
  };
  matrix_view<bfloat16 const> queries;                 ///< 4 heads for each key head x channels
  packed_heads<Bits> keys, values;                     ///< key head x channel x token, key head x token x channel
  view<bfloat16 const, 3> newest_keys, newest_values;  ///< key head x token x channel
  matrix_view<bfloat16> results;                       ///< as queries

  template <class G>
  using score_tile = gemm_tile<bfloat16, shape<16, tokens, 16>, G>;
  template <class G>
  using result_tile = gemm_tile<bfloat16, shape<16, channels, 16>, G>;
  template <class G>
  struct state {
    typename result_tile<G>::sum_tile totals;
    softmax_of_heads<G> softmax;
  };

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t head, scratch_type& scratch) const {
    state<G> now;
    now.softmax.begin(group);
    result_tile<G>::clear(group, now.totals);
    dense<bfloat16>{queries}.load(group, scratch.queries, head * heads, 0);
    attend(group, keys[head], values[head], now, scratch);
    attend(group, dense<bfloat16>{newest_keys[head].transposed()}, dense<bfloat16>{newest_values[head]}, now, scratch);
    head_numbers const sums = reduce(group, now.softmax.sums, sum_of_heads{});
    result_tile<G>::each(group, now.totals, [&](int h, int channel, float total) {
      if (h < heads) {
        results(head * heads + h, channel) = store<bfloat16>(total / sums.of[h]);
      }
    });
  }
  template <Group G, TileSource Keys, TileSource Values>
  TESSERA_FN void attend(G const& group, Keys const& k, Values const& v, state<G>& now, scratch_type& scratch) const {
    for (std::int64_t token = 0; token < v.rows(); token += tokens) {
      typename score_tile<G>::sum_tile scores;
      score_tile<G>::clear(group, scores);
      k.load(group, scratch.keys, 0, token);
      multiply_rows<score_tile<G>>(group, scratch.queries, scratch.keys, scores);
      score_tile<G>::store(group, scores, scratch.scores, tokens);
      group.sync();
      per_lane<head_numbers, G> of_token;
      std::int64_t const inside = min(v.rows() - token, std::int64_t{tokens});
      for (int lane : group) {
        for (int h = 0; h < heads; ++h) {
          of_token[lane].of[h] = lane < inside ? in_base_2 * scratch.scores[h * tokens + lane] : -infinity;
        }
      }
      head_numbers const factors = now.softmax.turn(group, of_token);  // scores become weights
      for (int lane : group) {
        for (int h = 0; h < heads && lane < tokens; ++h) {
          scratch.weights(h, lane) = store<bfloat16>(of_token[lane].of[h]);
        }
      }
      v.load(group, scratch.values, token, 0);  // ends with a sync
      result_tile<G>::each(group, now.totals, [&](int h, int, float& total) { total *= factors.of[h % heads]; });
      multiply_rows<result_tile<G>>(group, scratch.weights, scratch.values, now.totals);
      group.sync();
    }
  }
  static constexpr float in_base_2 = 1.4426950408889634F / 11.313708498984761F;  ///< log2(e) / sqrt(channels)
};

}  // namespace tessera_examples
