// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `decode_heads`: attention of a few queries over keys and values that are not quantized, in blocks of tokens that may
/// lie anywhere. It is the portable program of algorithm/attention/decode_attention.hpp.
///
/// A group takes a query of a head and a split of its keys, 128 at a time. merge_attention merges the splits
/// (program/attention/split_keys.hpp). The order of additions depends on the extents alone.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Keys and values of sequences: token n of sequence i is token n % block_tokens() of block blocks(i, n /
/// block_tokens()), or token n of block i if there are no lists of blocks.
template <class T>
struct decode_source {
  head_view<T const> keys;                      ///< block x key head x token of the block x channel
  head_view<T const> values;                    ///< block x key head x token of the block x channel
  matrix_view<std::int32_t const> blocks = {};  ///< sequence x block of the sequence; null: a sequence is a block
  sequence_lengths lengths = {};                ///< tokens of each sequence; null: as many as there is room for

  /// Tokens of a block.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t block_tokens() const { return keys.extent(2); }
  /// The first channel of a token's key or value.
  [[nodiscard]] TESSERA_FN constexpr T const* row(head_view<T const> const& of, std::int64_t sequence,
                                                  std::int64_t head, std::int64_t token) const {
    if (blocks.data == nullptr) {
      return &of(sequence, head, token, 0);
    }
    return &of(blocks(sequence, token / block_tokens()), head, token % block_tokens(), 0);
  }
};

/// Attends over keys and values that are not quantized. T: the type of queries, keys and values, whose channels lie
/// next to each other. Result: the type of results.
template <class T, class Result>
struct decode_heads {
  using softmax_type = online_softmax<float>;
  using row_type = attention_row<softmax_type::state_type>;
  static constexpr int lanes = 128;
  static constexpr int tile = lanes;  ///< keys that a group takes at a time
  static constexpr int most_channels = 256;
  static constexpr float log2_e = 1.4426950408889634F;

  struct scratch_type {
    float query[most_channels];   ///< the query, scaled, in base 2
    float totals[most_channels];  ///< sums of weighted values, by channel
    float weights[tile];          ///< weights of the tile's keys
  };

  decode_source<T> source;     ///< keys and values
  head_view<T const> queries;  ///< sequence x query head x query x channel
  float scale;                 ///< what scores are multiplied by
  bool is_causal;
  attention_writer<decode_method, Result> results;
  attention_partials<softmax_type::state_type> partials;

  TESSERA_FN constexpr std::int64_t groups() const {
    return partials.splits() * results.shape.batch * results.shape.query_heads * results.shape.queries;
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t number, scratch_type& scratch) const {
    std::int64_t const which = number / partials.splits();
    std::int64_t const head = which / results.shape.queries;
    work_coordinate const at{number % partials.splits(), head / results.shape.query_heads,
                             head % results.shape.query_heads, which % results.shape.queries};
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < results.shape.channels; channel += lanes) {
        scratch.query[channel] = load(queries(at.sequence, at.head, at.query, channel)) * (scale * log2_e);
        scratch.totals[channel] = 0.0F;
      }
    }
    group.sync();
    std::int64_t const seen = seen_by(at);
    std::int64_t const tiles = divide_up(seen, std::int64_t{tile});
    std::int64_t const each = divide_up(tiles, partials.splits());
    auto row = row_type::nothing(softmax_type{});
    for (std::int64_t i = at.split * each; i < min((at.split + 1) * each, tiles); ++i) {
      attend(group, at, i * tile, seen, row, scratch);
    }
    row.rounded = row.state.sum;
    finish(group, at, row, scratch);
  }

 private:
  struct work_coordinate {
    std::int64_t split;
    std::int64_t sequence;
    std::int64_t head;
    std::int64_t query;
  };

  TESSERA_FN std::int64_t seen_by(work_coordinate const& at) const {
    std::int64_t const length = length_of(source.lengths, at.sequence, results.shape.keys);
    std::int64_t const count = length_of(results.query_lengths, at.sequence, results.shape.queries);
    std::int64_t const behind = max(count - 1 - at.query, std::int64_t{0});
    return is_causal ? max(length - behind, std::int64_t{0}) : length;
  }

  /// Adds a tile of keys and values to the row, of which all lanes get the same copy. Ends with a sync.
  template <Group G>
  TESSERA_FN void attend(G const& group, work_coordinate const& at, std::int64_t first, std::int64_t seen,
                         row_type& row, scratch_type& scratch) const {
    softmax_type const softmax;
    std::int64_t const key_head = at.head / (results.shape.query_heads / results.shape.key_heads);
    per_lane<float, G> scores;
    for (int lane : group) {
      scores[lane] = -infinity;
      if (first + lane < seen) {
        T const* const key = source.row(source.keys, at.sequence, key_head, first + lane);
        float sum = 0.0F;
        for (std::int64_t channel = 0; channel < results.shape.channels; ++channel) {
          sum = multiply_add(scratch.query[channel], load(key[channel]), sum);
        }
        scores[lane] = sum;
      }
    }
    float const factor = softmax.turn(row.state, maximum(group, scores));
    for (int lane : group) {
      scores[lane] = softmax.weight(row.state, scores[lane]);
      scratch.weights[lane] = scores[lane];
    }
    row.state.sum += sum(group, scores);
    group.sync();
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < results.shape.channels; channel += lanes) {
        float total = 0.0F;
        for (std::int64_t i = 0; i < min(std::int64_t{tile}, seen - first); ++i) {
          float const value = load(source.row(source.values, at.sequence, key_head, first + i)[channel]);
          total = multiply_add(scratch.weights[i], value, total);
        }
        scratch.totals[channel] = multiply_add(factor, scratch.totals[channel], total);
      }
    }
    group.sync();
  }

  template <Group G>
  TESSERA_FN void finish(G const& group, work_coordinate const& at, row_type const& row,
                         scratch_type const& scratch) const {
    finished_row const done = results.finish(at.sequence, at.head, at.query, row);
    bool const is_split = partials.rows.data != nullptr;
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < results.shape.channels; channel += lanes) {
        if (is_split) {
          partials.totals(at.split, at.sequence, at.head, at.query, channel) = scratch.totals[channel];
        } else {
          results.write(at.sequence, at.head, at.query, channel, done.inverse, done.share, scratch.totals[channel]);
        }
      }
      if (lane == 0 && is_split) {
        partials.rows(at.split, at.sequence, at.head, at.query) = row;
      } else if (lane == 0) {
        results.write_log_sum_exp(at.sequence, at.head, at.query, done);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
