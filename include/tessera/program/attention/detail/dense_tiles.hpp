// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_tiles`: computes softmax(scores) * values over queries, keys and values of 16 bits, without the scores in
/// memory. It is the portable program of algorithm/attention/dense_attention.hpp.
///
/// A group takes 64 queries of a head and walks over the keys that they see from first to last, 128 at a time:
///
///     x  = scale * sum of products (+ bias)                       in base 2; minus infinity where masked
///     w  = 2^(x - r)                                              r: the tile's largest x, by row
///     O  = 2^(r before - r) O + p V                               p: w rounded to the type of values
///     L  = 2^(r before - r) L + sum of w
///
///     result = O / L                                              lse = ln 2 (r + log2 L)
///
/// Sums are in fp32: those of products by tensor cores where CUDA devices have them, those of weights in order, two
/// halves of a tile's 128 keys apart. So the order of additions depends on the extents alone.
///
/// Cost for each head: 4 * queries * keys * channels operations and queries * keys exponentials, less what a mask
/// leaves out in whole tiles of 64 x 128.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/mask.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/attention_block_list.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/sequence_lengths.hpp>
#include <tessera/view/sequence_starts.hpp>

namespace tessera {
inline namespace v0 {

/// Heads of one operand, of any strides.
template <class T>
struct dense_heads {
  head_view<T const> heads;       ///< batch x heads x tokens of the longest sequence x channels
  sequence_lengths lengths = {};  ///< tokens of each sequence; null: all are whole
  sequence_starts starts = {};    ///< where sequences lie one behind the other

  /// How many tokens a sequence has.
  [[nodiscard]] TESSERA_FN std::int64_t length(std::int64_t sequence) const {
    return length_of(lengths, sequence, heads.extent(2));
  }
  /// An element; zero beyond the sequence's tokens and the last channel.
  [[nodiscard]] TESSERA_FN T operator()(std::int64_t sequence, std::int64_t head, std::int64_t token,
                                        std::int64_t channel) const {
    bool const exists = token < length(sequence) && channel < heads.extent(3);
    std::int64_t const at = exists ? starts.row_of(sequence, token) : -1;
    return at < 0 ? T{} : heads(sequence, head, at, channel);
  }
};

/// Computes attention over operands of type T, bfloat16 or float16. Result: the type of results. Bias:
/// `bias(sequence, head, query, key)`. Channels: the most channels that a head may have, a multiple of 64.
template <class T, class Result, class Bias, int Channels>
struct dense_tiles {
  using softmax_type = online_softmax<float>;
  using state_type = softmax_type::state_type;
  using row_type = attention_row<state_type>;
  static constexpr int lanes = 128;
  static constexpr int rows = 64;                             ///< queries of a group
  static constexpr int columns = 128;                         ///< keys of a tile
  static constexpr int width = 64;                            ///< channels that are staged at a time
  static constexpr int parts = Channels / width;              ///< parts of 64 channels of values
  static constexpr int row_columns = columns * rows / lanes;  ///< columns of a row that a lane takes
  static constexpr float log2_e = 1.4426950408889634F;
  static_assert(parts * width == Channels, "tessera: dense_tiles has a whole number of 64 channels");

  /// The scratch of a group. Rows of scores lie one element further apart than they are long, so that lanes that each
  /// read a row use different banks.
  struct scratch_type {
    staged_tile<T, rows, width> q;     ///< 64 channels of queries
    staged_tile<T, columns, width> k;  ///< 64 channels of keys
    staged_tile<T, rows, columns> p;   ///< weights
    staged_tile<T, width, columns> v;  ///< values, by channels
    /// Scores in base 2; minus infinity where masked.
    float scores[rows * (columns + 1)];
    float largest[lanes];   ///< the largest score that each lane has seen
    float factor[rows];     ///< what earlier sums of each row are multiplied by
    row_type second[rows];  ///< the state of the second lane of each row
    float inverse[rows];    ///< finished_row::inverse of each row
    float share[rows];      ///< finished_row::share of each row
    /// The score of a query and a key of the tiles.
    TESSERA_FN float& score(int row, int column) { return scores[row * (columns + 1) + column]; }
  };

  attention_shape shape;
  dense_heads<T> queries;     ///< with their lengths and starts
  dense_heads<T> keys;        ///< with their lengths and starts
  dense_heads<T> values;      ///< with the lengths and starts of keys
  float scale;                ///< what scores are multiplied by, natural
  std::int64_t left;          ///< attention_mask::left
  std::int64_t right;         ///< attention_mask::right
  attention_block_list list;  ///< tiles of keys that are seen; null: all
  Bias bias;                  ///< added to scores, natural
  attention_writer<decode_method, Result> results;

  /// How many blocks of 64 queries a head has.
  TESSERA_FN constexpr std::int64_t query_blocks() const { return divide_up(shape.queries, std::int64_t{rows}); }
  TESSERA_FN constexpr std::int64_t groups() const { return shape.batch * shape.query_heads * query_blocks(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    using product = gemm_tile<T, tessera::shape<rows, width, 16>, G>;
    coordinates const at = coordinates_of(which);
    per_lane<state_type, G> state;
    typename product::sum_tile totals[parts];
    for (int part = 0; part < parts; ++part) {
      product::clear(group, totals[part]);
    }
    for (int lane : group) {
      state[lane] = softmax_type{}.identity();
    }
    key_interval const seen = at.seen();
    bool const has_list = list.counts.data != nullptr;
    std::int64_t const lowest = seen.first / columns;
    std::int64_t const beyond = divide_up(seen.end, std::int64_t{columns});
    std::int64_t const count = has_list ? list.count(at.sequence, at.head, at.first_query / rows) : beyond - lowest;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t const tile = has_list ? list.tiles(at.sequence, at.head, at.first_query / rows, i) : lowest + i;
      if (tile < lowest || tile >= beyond) {
        continue;
      }
      make_scores(group, at, tile * columns, scratch);
      make_weights(group, state, scratch);
      for (int part = 0; part < parts; ++part) {
        if (part * width < shape.channels) {
          add_values<product>(group, at, tile * columns, part, scratch, totals[part]);
        }
      }
    }
    finish_rows(group, at, state, scratch);
    for (int part = 0; part < parts; ++part) {
      product::each(group, totals[part], put{scratch});
      group.sync();
      write_channels(group, at, part * width, scratch);
    }
  }

 private:
  struct coordinates {
    std::int64_t sequence;
    std::int64_t head;
    std::int64_t key_head;
    std::int64_t first_query;
    attention_mask mask;

    /// The keys that some query of the block sees.
    TESSERA_FN key_interval seen() const {
      std::int64_t const last = min(first_query + rows, mask.queries) - 1;
      return {mask.of(first_query).first, last < first_query ? 0 : mask.of(last).end};
    }
  };

  TESSERA_FN coordinates coordinates_of(std::int64_t which) const {
    std::int64_t const head = which / query_blocks() % shape.query_heads;
    std::int64_t const sequence = which / query_blocks() / shape.query_heads;
    return {sequence,
            head,
            head / (shape.query_heads / shape.key_heads),
            which % query_blocks() * rows,
            {queries.length(sequence), keys.length(sequence), left, right}};
  }

  /// Fills the tile of scores. Ends with a sync.
  template <Group G>
  TESSERA_FN void make_scores(G const& group, coordinates const& at, std::int64_t first, scratch_type& scratch) const {
    using product = gemm_tile<T, tessera::shape<rows, columns, 16>, G>;
    typename product::sum_tile sums;
    product::clear(group, sums);
    for (std::int64_t channel = 0; channel < shape.channels; channel += width) {
      group.sync();  // all lanes have read the tiles before
      load_tokens(group, queries, {at.sequence, at.head}, at.first_query, channel, scratch.q);
      load_tokens(group, keys, {at.sequence, at.key_head}, first, channel, scratch.k);
      group.sync();
      multiply_staged<product>(group, scratch.q, scratch.k, sums);
    }
    product::each(group, sums, keep{*this, at, first, scratch});
    group.sync();
  }

  struct place {
    std::int64_t sequence;
    std::int64_t head;
  };
  /// Loads tokens x channels.
  template <Group G, int Rows, int Columns>
  TESSERA_FN static void load_tokens(G const& group, dense_heads<T> const& from, place of, std::int64_t first_token,
                                     std::int64_t first_channel, staged_tile<T, Rows, Columns>& tile) {
    for (int lane : group) {
      for (int i = lane; i < Rows * Columns; i += lanes) {
        tile(i / Columns, i % Columns) =
            from(of.sequence, of.head, first_token + i / Columns, first_channel + i % Columns);
      }
    }
  }
  /// Loads channels x tokens.
  template <Group G, int Rows, int Columns>
  TESSERA_FN static void load_channels(G const& group, dense_heads<T> const& from, place of, std::int64_t first_token,
                                       std::int64_t first_channel, staged_tile<T, Rows, Columns>& tile) {
    for (int lane : group) {
      for (int i = lane; i < Rows * Columns; i += lanes) {
        tile(i % Rows, i / Rows) = from(of.sequence, of.head, first_token + i / Rows, first_channel + i % Rows);
      }
    }
  }

  struct keep {
    dense_tiles const& program;
    coordinates const& at;
    std::int64_t first;
    scratch_type& scratch;

    TESSERA_FN void operator()(int row, int column, float sum) const {
      std::int64_t const query = at.first_query + row;
      std::int64_t const key = first + column;
      key_interval const seen = at.mask.of(query);
      float score = -infinity;
      if (key >= seen.first && key < seen.end) {
        score = sum * (program.scale * log2_e);
        if constexpr (!std::is_same_v<Bias, no_bias>) {
          score += program.bias(at.sequence, at.head, query, key) * log2_e;
        }
      }
      scratch.score(row, column) = score;
    }
  };

  /// Turns scores into weights, and adds them to the states of their rows. Ends with a sync.
  template <Group G>
  TESSERA_FN void make_weights(G const& group, per_lane<state_type, G>& state, scratch_type& scratch) const {
    for (int lane : group) {
      float largest = -infinity;
      for (int i = 0; i < row_columns; ++i) {
        largest = max(largest, scratch.score(lane % rows, lane / rows * row_columns + i));
      }
      scratch.largest[lane] = largest;
    }
    group.sync();
    for (int lane : group) {
      int const row = lane % rows;
      softmax_type const softmax;
      float const factor = softmax.turn(state[lane], max(scratch.largest[row], scratch.largest[row + rows]));
      if (lane < rows) {
        scratch.factor[row] = factor;
      }
      for (int i = 0; i < row_columns; ++i) {
        int const column = lane / rows * row_columns + i;
        float const weight = softmax.weight(state[lane], scratch.score(row, column));
        state[lane].sum += weight;
        scratch.p(row, column) = store<T>(weight);
      }
    }
    group.sync();
  }

  template <class Product, Group G>
  TESSERA_FN void add_values(G const& group, coordinates const& at, std::int64_t first, int part, scratch_type& scratch,
                             typename Product::sum_tile& totals) const {
    group.sync();  // all lanes have read the values before
    load_channels(group, values, {at.sequence, at.key_head}, first, std::int64_t{part} * width, scratch.v);
    group.sync();
    typename Product::sum_tile sums;
    Product::clear(group, sums);
    multiply_staged<Product>(group, scratch.p, scratch.v, sums);
    Product::each_pair(group, sums, totals, add{scratch});
  }

  struct add {
    scratch_type const& scratch;
    TESSERA_FN void operator()(int row, int, float sum, float& total) const {
      total = scratch.factor[row] * total + sum;
    }
  };

  /// Makes what results are multiplied by, and writes log-sum-exps. Ends with a sync.
  template <Group G>
  TESSERA_FN void finish_rows(G const& group, coordinates const& at, per_lane<state_type, G> const& state,
                              scratch_type& scratch) const {
    for (int lane : group) {
      if (lane >= rows) {
        scratch.second[lane - rows] = {state[lane], 0.0F};
      }
    }
    group.sync();
    for (int lane : group) {
      std::int64_t const query = at.first_query + lane;
      if (lane < rows && query < shape.queries) {
        row_type row{state[lane], 0.0F};
        row.state.sum += scratch.second[lane].state.sum;  // both lanes have the same reference
        row.rounded = row.state.sum;
        finished_row const finished = results.finish(at.sequence, at.head, query, row);
        scratch.inverse[lane] = finished.inverse;
        scratch.share[lane] = finished.share;
        results.write_log_sum_exp(at.sequence, at.head, query, finished);
      }
    }
    group.sync();
  }

  /// Keeps totals where scores were.
  struct put {
    scratch_type& scratch;
    TESSERA_FN void operator()(int row, int column, float total) const { scratch.score(row, column) = total; }
  };

  /// Writes the totals of 64 channels. Ends with a sync.
  template <Group G>
  TESSERA_FN void write_channels(G const& group, coordinates const& at, int first_channel,
                                 scratch_type& scratch) const {
    for (int lane : group) {
      for (int i = lane; i < rows * width; i += lanes) {
        int const row = i / width;
        std::int64_t const query = at.first_query + row;
        int const channel = first_channel + i % width;
        if (query < shape.queries && channel < shape.channels) {
          results.write(at.sequence, at.head, query, channel, scratch.inverse[row], scratch.share[row],
                        scratch.score(row, i % width));
        }
      }
    }
    group.sync();
  }
};

}  // namespace v0
}  // namespace tessera
