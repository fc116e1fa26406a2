// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Computes, in fp32, the parts of scores that smoothing subtracts and attention must add again (SageAttention2, arXiv
/// 2411.10958, section 3.1): `mean_scores` those of the mean key, for log-sum-exps, and `query_corrections` those of
/// mean queries, for every score.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention/quantize_heads.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// Makes scale * query . mean key for each query. A group takes 128 queries.
template <class Source>
struct mean_scores {
  static constexpr int lanes = 128;
  struct scratch_type {};

  Source queries;                  ///< the queries: a head_source
  view<float const, 3> key_means;  ///< batch x key heads x channels
  float scale;                     ///< what scores are multiplied by
  view<float, 3> scores;           ///< batch x query heads x queries

  /// How many groups take the queries of a head.
  TESSERA_FN constexpr std::int64_t blocks() const { return divide_up(queries.tokens(), std::int64_t{lanes}); }
  TESSERA_FN constexpr std::int64_t groups() const { return queries.batch() * queries.heads() * blocks(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which / blocks() % queries.heads();
    std::int64_t const sequence = which / blocks() / queries.heads();
    std::int64_t const key_head = head / (queries.heads() / key_means.extent(1));
    for (int lane : group) {
      std::int64_t const query = which % blocks() * lanes + lane;
      if (query < queries.length(sequence)) {
        float sum = 0.0F;
        for (std::int64_t channel = 0; channel < queries.channels(); ++channel) {
          sum += queries(sequence, head, query, channel) * key_means(sequence, key_head, channel);
        }
        scores(sequence, head, query) = scale * sum;
      }
    }
  }
};

/// Keys as their codes stand for them, without their mean: a source for query_corrections where keys themselves were
/// not kept.
template <class Code, class Groups>
struct decoded_keys {
  quantized_keys<Code> keys;  ///< codes and scales of keys
  sequence_lengths lengths;
  std::int64_t tokens;  ///< tokens of the longest sequence

  /// Key heads of a sequence.
  TESSERA_FN constexpr std::int64_t heads() const { return keys.codes.extent(1); }
  /// Tokens of a sequence.
  TESSERA_FN std::int64_t length(std::int64_t sequence) const { return length_of(lengths, sequence, tokens); }
  TESSERA_FN float operator()(std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    return static_cast<float>(keys.code(sequence, head, token, channel)) *
           keys.scales(sequence, head, Groups::group_of(token));
  }
};

/// Makes factor * mean query . (key - mean key) for each block of queries and each key. A group takes 128 keys and up
/// to 64 rows of scores; a row is a block of queries of any of the query heads that share the keys. So keys are read
/// from memory once for all of these rows.
template <class Source, class Queries>
struct query_corrections {
  static constexpr int lanes = 128;
  static constexpr int most_rows = 64;  ///< the most rows of a group
  static constexpr int together = 8;    ///< rows that a key's channel is multiplied with while it is in a register
  static_assert(lanes == attention_padding, "tessera: a group takes a tile of keys, of which it finds the range");
  struct scratch_type {};

  view<float const, 4> query_means;  ///< batch x query heads x blocks x channels
  smoothed_heads<Source> keys;       ///< the keys, minus their mean
  float factor;                      ///< what products are multiplied by: the softmax's scale, in base 2
  Queries queries;                   ///< a quantized_queries: where corrections and their ranges go

  /// How many groups take the keys of a head.
  TESSERA_FN constexpr std::int64_t key_blocks() const { return queries.corrections.extent(3) / lanes; }
  /// How many rows of scores a key head has.
  TESSERA_FN constexpr std::int64_t rows() const {
    return queries.corrections.extent(1) / keys.source.heads() * queries.corrections.extent(2);
  }
  /// How many groups take the rows of a key head.
  TESSERA_FN constexpr std::int64_t parts() const { return divide_up(rows(), std::int64_t{most_rows}); }
  TESSERA_FN constexpr std::int64_t groups() const {
    return queries.corrections.extent(0) * keys.source.heads() * parts() * key_blocks();
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const part = which / key_blocks() % parts();
    std::int64_t const key_head = which / key_blocks() / parts() % keys.source.heads();
    std::int64_t const sequence = which / key_blocks() / parts() / keys.source.heads();
    std::int64_t const end = min((part + 1) * most_rows, rows());
    for (int lane : group) {
      std::int64_t const key = which % key_blocks() * lanes + lane;
      for (std::int64_t row = part * most_rows; row < end; row += together) {
        correct(sequence, key_head, key, row, end);
      }
    }
    group.sync();
    for (int lane : group) {
      if (std::int64_t const row = part * most_rows + lane; row < end) {
        find_range(sequence, key_head, row, which % key_blocks());
      }
    }
  }

 private:
  /// Makes the corrections of a key for up to 8 rows: `row`, row + 1, ..., below `end`.
  TESSERA_FN void correct(std::int64_t sequence, std::int64_t key_head, std::int64_t key, std::int64_t row,
                          std::int64_t end) const {
    std::int64_t const blocks = queries.corrections.extent(2);
    std::int64_t const first_head = key_head * (queries.corrections.extent(1) / keys.source.heads());
    float sums[together] = {};
    if (key < keys.length(sequence)) {
      float const* means[together];
      for (int i = 0; i < together; ++i) {
        std::int64_t const at = min(row + i, end - 1);  // beyond the last row, the last row again
        means[i] = &query_means(sequence, first_head + at / blocks, at % blocks, 0);
      }
      for (std::int64_t channel = 0; channel < query_means.extent(3); ++channel) {
        float const value = keys(sequence, key_head, key, channel);
        for (int i = 0; i < together; ++i) {
          sums[i] += means[i][channel * query_means.stride(3)] * value;
        }
      }
    }
    for (int i = 0; i < together; ++i) {
      if (row + i < end) {
        queries.correction(sequence, first_head + (row + i) / blocks, (row + i) % blocks, key) = factor * sums[i];
      }
    }
  }
  /// Finds the range of a row's corrections of a tile of keys.
  TESSERA_FN void find_range(std::int64_t sequence, std::int64_t key_head, std::int64_t row, std::int64_t tile) const {
    std::int64_t const blocks = queries.corrections.extent(2);
    std::int64_t const head = key_head * (queries.corrections.extent(1) / keys.source.heads()) + row / blocks;
    float least = infinity;
    float highest = -infinity;
    for (std::int64_t slot = tile * lanes; slot < (tile + 1) * lanes; ++slot) {
      float const score = queries.corrections(sequence, head, row % blocks, slot);
      least = score < least || is_nan(score) ? score : least;
      highest = score > highest || is_nan(score) ? score : highest;
    }
    queries.correction_ranges(sequence, head, row % blocks, tile) = correction_range::of(least, highest);
  }
};

}  // namespace v0
}  // namespace tessera
