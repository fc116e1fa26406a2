// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `cached_attention`: attention of a few queries over a compressed cache, without restoring it first; the portable
/// program of algorithm/paged_cache/cross_layer_cache.hpp.
///
/// A group takes up to 16 rows, which are queries of the query heads that share a key head. It walks over a split
/// of the pages and of the tail, 64 tokens at a time:
///
///     q'_d = q_d * scale_d          b = sum of q_d * minimum_d             q: times the softmax's scale and log2(e)
///     x_j  = norm_j * (sum of q'_d * code_jd + b)                              in base 2; retained and tail: q . k_j
///     w_j  = 2^(x_j - r)            r: the tile's largest x
///     O_d += w_j * scale_j * (code_jd + ratio_j)                               retained and tail: w_j * v_jd
///
/// so that no key or value is restored. Pages of a codec other than direction_codec are read by its score() and add().
/// merge_attention (program/attention/split_keys.hpp) merges the splits. The order of additions depends on the extents
/// alone. Rows of an impossible sequence, or of one with an impossible block, are NaN.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/page_codec.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/view/cache_inputs.hpp>
#include <tessera/view/cache_sequences.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// The rows of a group: queries of the query heads of a key head, head after head.
inline constexpr int cached_attention_rows = 16;

/// Attention over a cache. T: the type of the cache and of queries. Result: the type of results. Channels: the most
/// channels of a head.
template <class T, class Result, int Channels, PageCodec C>
struct cached_attention {
  using softmax_type = online_softmax<float>;
  using row_type = attention_row<softmax_type::state_type>;
  static constexpr int lanes = 128;
  static constexpr int rows = cached_attention_rows;  ///< rows of a group: queries of heads that share a key head
  static constexpr int tokens = cache_page_format::tokens;
  static constexpr float log2_e = 1.4426950408889634F;

  struct scratch_type {
    float queries[rows * Channels];  ///< queries, scaled, in base 2
    float folded[rows * Channels];   ///< queries times the page's key scales
    float totals[rows * Channels];   ///< sums of weighted values of each row
    float bias[rows];                ///< queries times the page's key minima, for each row
    float scores[rows * tokens];     ///< scores, and then weights
    float factor[rows];              ///< the factor of earlier sums, for each row
    row_type row[rows];              ///< the state of the softmax of each row
  };

  cache_memory<T> memory;
  cache_sequences sequences;
  int layer;                   ///< which layer of the part: 0 or 1
  head_view<T const> queries;  ///< sequence x query head x query x channel
  float scale;                 ///< the softmax's scale
  bool is_causal;              ///< whether a query sees no later keys; the last query's own key is the last one
  attention_writer<decode_method, Result> results;
  attention_partials<softmax_type::state_type> partials;
  status_word* status;  ///< where impossible sequences and blocks are reported
  C codec = {};         ///< reads pages

  /// The rows of a key head: queries of all of its query heads.
  TESSERA_FN constexpr std::int64_t head_rows() const {
    return results.shape.query_heads / results.shape.key_heads * results.shape.queries;
  }
  /// The groups that the rows of a key head need.
  TESSERA_FN constexpr std::int64_t row_blocks() const { return divide_up(head_rows(), std::int64_t{rows}); }
  TESSERA_FN constexpr std::int64_t groups() const {
    return results.shape.batch * results.shape.key_heads * row_blocks() * partials.splits();
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t number, scratch_type& scratch) const {
    std::int64_t const split = number % partials.splits();
    std::int64_t const which = number / partials.splits();
    std::int64_t const sequence = which / row_blocks() / memory.heads;
    std::int64_t const most = results.shape.keys;
    coordinates at{sequence,
                   sequences.slot(sequence),
                   which / row_blocks() % memory.heads,
                   which % row_blocks() * rows,
                   sequences.lengths.data == nullptr ? most : sequences.length(sequence),
                   0,
                   0};
    at.row_count = static_cast<int>(min(std::int64_t{rows}, head_rows() - at.first_row));
    at.sealed = sealed_pages(sequences, sequence, at.length, memory.window);
    sequence_fault fault =
        memory.fault_of({at.slot, at.length, at.length, at.sealed, at.sealed}, most, sequences.blocks.extent(1));
    begin(group, at, scratch);
    std::int64_t const tiles = fault.is_none() ? divide_up(at.length, std::int64_t{tokens}) : 0;
    std::int64_t const each = divide_up(tiles, partials.splits());
    for (std::int64_t tile = split * each; tile < min((split + 1) * each, tiles) && fault.is_none(); ++tile) {
      if (tile >= at.sealed) {
        attend(group, at, tile, open_tile{memory, at.slot, at.head, tile * tokens, layer}, scratch);
        continue;
      }
      std::int64_t const block = sequences.blocks(sequence, tile);
      fault = memory.fault_of_block(block);
      if (fault.is_none()) {
        auto const page = codec.reader(memory.format, memory.page_of(codec, block, at.head), layer);
        attend(group, at, tile, sealed_tile{memory, page, at.slot, at.head, layer}, scratch);
      }
    }
    if (!fault.is_none()) {
      fault.report(group, status, sequence);
      spoil(group, at, scratch);
    }
    finish(group, at, split, scratch);
  }

 private:
  struct coordinates {
    std::int64_t sequence;
    std::int64_t slot;
    std::int64_t head;  ///< key head
    std::int64_t first_row;
    std::int64_t length;
    std::int64_t sealed;
    int row_count;
  };

  /// The tokens of a page.
  struct sealed_tile {
    cache_memory<T> const& memory;
    page_reader_t<C> page;
    std::int64_t slot;
    std::int64_t head;
    int layer;

    TESSERA_FN float scale(int channel) const { return page.key_scale(channel); }
    TESSERA_FN float minimum(int channel) const { return page.key_minimum(channel); }
    TESSERA_FN float score(int token, float const* query, float const* folded, float bias) const {
      if (page.is_retained(token)) {
        T const* const key = memory.retained_row(slot, head, page.row_of(token), layer, key_part);
        float sum = 0.0F;
        for (int channel = 0; channel < memory.format.channels; ++channel) {
          sum = multiply_add(query[channel], load(key[channel]), sum);
        }
        return sum;
      }
      return page.score(token, query, folded, bias);
    }
    TESSERA_FN float add(float total, float weight, int token, int channel) const {
      if (page.is_retained(token)) {
        T const* const value = memory.retained_row(slot, head, page.row_of(token), layer, value_part);
        return multiply_add(weight, load(value[channel]), total);
      }
      return page.add(total, weight, token, channel);
    }
  };

  /// The tokens of a block of the tail.
  struct open_tile {
    cache_memory<T> const& memory;
    std::int64_t slot;
    std::int64_t head;
    std::int64_t first;
    int layer;

    TESSERA_FN float scale(int) const { return 1.0F; }
    TESSERA_FN float minimum(int) const { return 0.0F; }
    TESSERA_FN float score(int token, float const* query, float const*, float) const {
      T const* const key = memory.tail_row(slot, layer, key_part, head, first + token);
      float sum = 0.0F;
      for (int channel = 0; channel < memory.format.channels; ++channel) {
        sum = multiply_add(query[channel], load(key[channel]), sum);
      }
      return sum;
    }
    TESSERA_FN float add(float total, float weight, int token, int channel) const {
      return multiply_add(weight, load(memory.tail_row(slot, layer, value_part, head, first + token)[channel]), total);
    }
  };

  TESSERA_FN std::int64_t query_head(coordinates const& at, int row) const {
    std::int64_t const each = results.shape.query_heads / results.shape.key_heads;
    return at.head * each + (at.first_row + row) / results.shape.queries;
  }
  TESSERA_FN std::int64_t query_of(coordinates const& at, int row) const {
    return (at.first_row + row) % results.shape.queries;
  }
  /// The number of tokens that a row sees.
  TESSERA_FN std::int64_t seen(coordinates const& at, int row) const {
    std::int64_t const count = length_of(results.query_lengths, at.sequence, results.shape.queries);
    std::int64_t const behind = max(count - 1 - query_of(at, row), std::int64_t{0});
    return is_causal ? max(at.length - behind, std::int64_t{0}) : at.length;
  }

  template <Group G>
  TESSERA_FN void begin(G const& group, coordinates const& at, scratch_type& scratch) const {
    int const channels = memory.format.channels;
    for (int lane : group) {
      for (int i = lane; i < at.row_count * channels; i += lanes) {
        int const row = i / channels;
        float const query = load(queries(at.sequence, query_head(at, row), query_of(at, row), i % channels));
        scratch.queries[i] = query * (scale * log2_e);
        scratch.totals[i] = 0.0F;
      }
      if (lane < at.row_count) {
        scratch.row[lane] = row_type::nothing(softmax_type{});
      }
    }
    group.sync();
  }

  /// Makes all rows NaN. Ends with a sync.
  template <Group G>
  TESSERA_FN void spoil(G const& group, coordinates const& at, scratch_type& scratch) const {
    for (int lane : group) {
      if (lane < at.row_count) {
        row_type& row = scratch.row[lane];
        row.state = {0.0F, 0.0F, bit_cast<float>(0x7fffffffU)};
        row.rounded = row.state.sum;
      }
    }
    group.sync();
  }

  /// Attends to the tokens of a tile. Ends with a sync.
  template <Group G, class Tile>
  TESSERA_FN void attend(G const& group, coordinates const& at, std::int64_t number, Tile const& tile,
                         scratch_type& scratch) const {
    int const channels = memory.format.channels;
    for (int lane : group) {
      for (int i = lane; i < at.row_count * channels; i += lanes) {
        scratch.folded[i] = scratch.queries[i] * tile.scale(i % channels);
      }
      if (lane < at.row_count) {
        float sum = 0.0F;
        for (int channel = 0; channel < channels; ++channel) {
          sum = multiply_add(scratch.queries[lane * channels + channel], tile.minimum(channel), sum);
        }
        scratch.bias[lane] = sum;
      }
    }
    group.sync();
    for (int lane : group) {
      for (int i = lane; i < at.row_count * tokens; i += lanes) {
        int const row = i / tokens;
        bool const is_seen = number * tokens + i % tokens < seen(at, row);
        scratch.scores[i] = is_seen ? tile.score(i % tokens, scratch.queries + row * channels,
                                                 scratch.folded + row * channels, scratch.bias[row])
                                    : -infinity;
      }
    }
    group.sync();
    for (int lane : group) {
      if (lane < at.row_count) {
        weigh(lane, scratch);
      }
    }
    group.sync();
    for (int lane : group) {
      for (int i = lane; i < at.row_count * channels; i += lanes) {
        add_values(i / channels, i % channels, tile, scratch);
      }
    }
    group.sync();
  }

  /// Turns the scores of a row into weights.
  TESSERA_FN void weigh(int row, scratch_type& scratch) const {
    softmax_type const softmax;
    float* const scores = scratch.scores + row * tokens;
    float largest = -infinity;
    for (int token = 0; token < tokens; ++token) {
      largest = max(largest, scores[token]);
    }
    float const factor = softmax.turn(scratch.row[row].state, largest);
    for (int token = 0; token < tokens; ++token) {
      scores[token] = softmax.weight(scratch.row[row].state, scores[token]);
      scratch.row[row].state.sum += scores[token];
    }
    scratch.factor[row] = factor;
    scratch.row[row].rounded = scratch.row[row].state.sum;
  }

  template <class Tile>
  TESSERA_FN void add_values(int row, int channel, Tile const& tile, scratch_type& scratch) const {
    float& total = scratch.totals[row * memory.format.channels + channel];
    float sum = 0.0F;
    for (int token = 0; token < tokens; ++token) {
      float const weight = scratch.scores[row * tokens + token];
      if (weight != 0.0F) {  // a value without weight may never have been written
        sum = tile.add(sum, weight, token, channel);
      }
    }
    total = multiply_add(scratch.factor[row], total, sum);
  }

  template <Group G>
  TESSERA_FN void finish(G const& group, coordinates const& at, std::int64_t split, scratch_type const& scratch) const {
    int const channels = memory.format.channels;
    for (int lane : group) {
      for (int i = lane; i < at.row_count * channels; i += lanes) {
        int const row = i / channels;
        std::int64_t const head = query_head(at, row);
        std::int64_t const query = query_of(at, row);
        if (partials.rows.data != nullptr) {
          partials.totals(split, at.sequence, head, query, i % channels) = scratch.totals[i];
        } else {
          finished_row const done = results.finish(at.sequence, head, query, scratch.row[row]);
          results.write(at.sequence, head, query, i % channels, done.inverse, done.share, scratch.totals[i]);
        }
      }
      if (lane < at.row_count) {
        finish_row(at, split, lane, scratch.row[lane]);
      }
    }
  }
  TESSERA_FN void finish_row(coordinates const& at, std::int64_t split, int row, row_type const& known) const {
    std::int64_t const head = query_head(at, row);
    std::int64_t const query = query_of(at, row);
    if (partials.rows.data != nullptr) {
      partials.rows(split, at.sequence, head, query) = known;
    } else {
      results.write_log_sum_exp(at.sequence, head, query, results.finish(at.sequence, head, query, known));
    }
  }
};

}  // namespace v0
}  // namespace tessera
