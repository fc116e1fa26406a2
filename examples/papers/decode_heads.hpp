// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `decode_heads`: decoding attention of the four query heads of a key head over tokens of any TileSources, 128 at a
/// time, in bf16: what KIVI and Quest have in common. A group of lanes takes a key head.
///
///     o = sum_t w_t v_t / sum_t w_t      w_t = exp(q . k_t / sqrt(channels))
#pragma once

#include <tessera/core/math.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/source/dense.hpp>

#include "decode_scratch.hpp"
#include "words.hpp"

namespace tessera_examples {

template <class G>
class decode_heads {
 public:
  static constexpr int tokens = 128, channels = 128, heads = 4;
  /// queries: 4 heads for each key head x channels
  template <class Scratch>
  TESSERA_FN decode_heads(G const& group, matrix_view<bfloat16 const> queries, std::int64_t head, Scratch& scratch) {
    softmax_.begin(group);
    result_tile::clear(group, totals_);
    dense<bfloat16>{queries}.load(group, scratch.queries, head * heads, 0);
  }
  /// keys: K^T where scratch has keys by channels, else K. is_there(i): whether row i of the values is a token.
  template <class Scratch, TileSource Keys, TileSource Values, class IsThere = always>
  TESSERA_FN void attend(G const& group, Keys const& keys, Values const& values, Scratch& scratch,
                         IsThere const& is_there = {}) {
    for (std::int64_t token = 0; token < values.rows(); token += tokens) {
      typename score_tile::sum_tile scores;
      score_tile::clear(group, scores);
      multiply_keys(group, keys, token, scratch.queries, scratch.keys, scores);
      score_tile::store(group, scores, scratch.scores, tokens);
      group.sync();
      per_lane<head_numbers, G> of_token;
      for (int lane : group) {
        bool const counts = lane < min(values.rows() - token, std::int64_t{tokens}) && is_there(token + lane);
        for (int h = 0; h < heads; ++h) {
          of_token[lane].of[h] = counts ? in_base_2 * scratch.scores[h * tokens + lane] : -infinity;
        }
      }
      head_numbers const factors = softmax_.turn(group, of_token);  // scores become weights
      for (int lane : group) {
        for (int h = 0; h < heads && lane < tokens; ++h) {
          scratch.weights(h, lane) = store<bfloat16>(of_token[lane].of[h]);
        }
      }
      values.load(group, scratch.values, token, 0);  // ends with a sync
      result_tile::each(group, totals_, [&](int h, int, float& total) { total *= factors.of[h % heads]; });
      multiply_staged_rows<result_tile>(group, scratch.weights, scratch.values, totals_);
      group.sync();
    }
  }
  TESSERA_FN void finish(G const& group, std::int64_t head, matrix_view<bfloat16> results) {
    head_numbers const sums = reduce(group, softmax_.sums, sum_of_heads{});
    result_tile::each(group, totals_, [&](int h, int channel, float total) {
      if (h < heads) {
        results(head * heads + h, channel) = store<bfloat16>(total / sums.of[h]);
      }
    });
  }

 private:
  using score_tile = gemm_tile<bfloat16, shape<16, tokens, 16>, G>;
  using result_tile = gemm_tile<bfloat16, shape<16, channels, 16>, G>;
  static constexpr float in_base_2 = 1.4426950408889634F / 11.313708498984761F;  ///< log2(e) / sqrt(channels)

  template <class Keys, class Queries>
  TESSERA_FN static void multiply_keys(G const& group, Keys const& from, std::int64_t token, Queries const& queries,
                                       keys_by_channels& keys, typename score_tile::sum_tile& scores) {
    from.load(group, keys, 0, token);
    multiply_staged_rows<score_tile>(group, queries, keys, scores);
  }
  template <class Keys, class Queries>
  TESSERA_FN static void multiply_keys(G const& group, Keys const& from, std::int64_t token, Queries const& queries,
                                       keys_by_tokens& keys, typename score_tile::sum_tile& scores) {
    from.load(group, keys, token, 0);
    multiply_staged<score_tile>(group, queries, keys, scores);
  }

  typename result_tile::sum_tile totals_;
  softmax_of_heads<G> softmax_;
};

}  // namespace tessera_examples
