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
/// Scores and weights stay where the product leaves them, in registers on a GPU (tile/row_tile.hpp). Values of a tile
/// are on their way while its scores are made, and keys of the next tile while weights are made and values multiplied
/// (tile/copies_in_flight.hpp). Sums are in fp32:
/// those of products by tensor cores where CUDA devices have them, those of weights in the order of the row_tile. So
/// the order of additions depends on the executor and the extents alone.
///
/// Cost for each head: 4 * queries * keys * channels operations and queries * keys exponentials, less what a mask
/// leaves out in whole tiles of 64 x 128.
///
/// sm_80's code on an H100, 16384 tokens, TFLOP/s: 242 with 128 channels, 192 with 64, 235 with 256
/// (bench/results/sm80.json). Before keys and values were on their way meanwhile 103 with 128 channels, and with scores
/// in shared memory, loaded element by element, 12 (on an H200).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/key_cursor.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/rows/weigh_rows.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/attention_block_list.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/matrix_view.hpp>
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
  /// The tokens of a head: those of the sequence that lie in memory, x channels.
  [[nodiscard]] TESSERA_FN dense<T> tokens(std::int64_t sequence, std::int64_t head) const {
    view<T const, 2> const all = heads[sequence][head];
    std::int64_t const first = starts.row_of(sequence, 0);
    std::int64_t const own = length(sequence);
    std::int64_t const count = starts.first.data == nullptr ? own : first < 0 ? 0 : min(own, starts.total - first);
    return {{all.data + max(first, std::int64_t{0}) * all.stride(0),
             {count, heads.extent(3)},
             {all.stride(0), all.stride(1)}}};
  }
};

/// Computes attention over operands of type T, bfloat16 or float16. Result: the type of results. Bias:
/// `bias(sequence, head, query, key)`. Channels: the most channels that a head may have, a multiple of 64.
template <class T, class Result, class Bias, int Channels>
struct dense_tiles {
  /// The softmax of weigh_rows.
  struct softmax_type : online_softmax<float> {
    using largest_type = maximum_reducer<float>;   ///< a Reducer of a tile's scores
    using sum_type = sum_reducer<float>;           ///< a Reducer of a tile's weights
    static constexpr bool sums_whole_rows = true;  ///< sums are merged in each tile
    TESSERA_FN void add(state_type& state, float, float sum) const { state.sum += sum; }
  };
  using state_type = typename softmax_type::state_type;
  using row_type = attention_row<state_type>;
  /// Where a group is: its block of queries.
  using coordinates = detail::query_block<64>;
  static constexpr int lanes = 128;
  static constexpr int rows = 64;                             ///< queries of a group
  static constexpr int tile_keys = 128;                       ///< keys of a tile of a list
  static constexpr int columns = Channels <= 128 ? 128 : 64;  ///< keys at a time: registers are scarce
  static constexpr int width = 64;                            ///< channels that are staged at a time
  static constexpr int parts = Channels / width;              ///< parts of 64 channels
  static constexpr float log2_e = 1.4426950408889634F;
  static_assert(parts * width == Channels, "tessera: dense_tiles has a whole number of 64 channels");

  struct scratch_type {
    staged_tile<T, rows, width> q[parts];  ///< queries, 64 channels in each tile
    /// Keys and values while there are any, then results.
    union {
      staged_tile<T, columns, width> of_keys[2][parts];  ///< keys, and values, 64 channels in each tile
      float totals[rows * (width + 1)];  ///< sums of 64 channels, rows one number further apart than long
    };
    finished_row finished[rows];  ///< what results of each row are made with

    /// 64 channels of keys.
    TESSERA_FN auto& k(int part) { return of_keys[0][part]; }
    /// 64 channels of values.
    TESSERA_FN auto& v(int part) { return of_keys[1][part]; }
    /// A sum of 64 channels.
    TESSERA_FN float& total(int row, int column) { return totals[row * (width + 1) + column]; }
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
  TESSERA_FN constexpr std::int64_t query_blocks() const { return coordinates::count(shape); }
  TESSERA_FN constexpr std::int64_t groups() const { return shape.batch * shape.query_heads * query_blocks(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    using row_words = words<G>;
    using copies = copies_in_flight<G>;
    coordinates const at = coordinates_of(which);
    row_states<G> state;
    begin_rows(group, at, state);
    typename row_words::results::sum_tile totals[parts];
    each_constant<parts>([&](auto part) { row_words::results::clear(group, totals[part.value]); });
    dense<T> const own = queries.tokens(at.sequence, at.head);
    for (int part = 0; part < parts; ++part) {
      own.begin_load(group, scratch.q[part], at.first_query, std::int64_t{part} * width);
    }
    cursor next(at, list, 1, 0);
    begin_keys(group, at, next, scratch);
    while (next.exists()) {
      std::int64_t const now = next.key();
      group.sync();  // all lanes have read the values before
      begin_values(group, at, now, scratch);
      copies::template await<1>();
      group.sync();  // queries and keys are there
      typename row_words::scores::sum_tile scores;
      make_scores(group, scratch, scores);
      next.move_on(at, list);
      group.sync();  // all lanes have read the keys
      begin_keys(group, at, next, scratch);
      mask_scores(group, at, now, state, scores);
      weigh_rows<typename row_words::scores>(group, softmax_type{}, scores, state.softmax, state.factor);
      copies::template await<1>();
      group.sync();  // values are there
      add_values(group, state, scores, scratch, totals);
    }
    copies::template await<0>();  // queries that had no keys
    finish_rows(group, at, state, totals, scratch);
  }

 private:
  /// Where a group is in the keys that its queries see.
  using cursor = detail::key_cursor<tile_keys, columns>;

  /// The products of a group.
  template <class G>
  struct words {
    using scores = row_tile<T, tessera::shape<rows, columns, 16>, G>;  ///< queries by keys
    using results = row_tile<T, tessera::shape<rows, width, 16>, G>;   ///< weights by values
    static_assert(RowTile<scores> && RowTile<results>);
  };
  /// What is known of the rows of a group.
  template <class G>
  struct row_states {
    template <class Value>
    using each = typename words<G>::scores::template row_values<Value>;
    each<key_interval> seen;   ///< the keys that the row sees
    each<state_type> softmax;  ///< the row's softmax
    each<float> factor;        ///< what earlier sums of the row are multiplied by
  };

  /// The columns of a tile of scores that a row sees.
  struct seen_columns {
    int first;  ///< the first column
    int end;    ///< one past the last column
  };

  TESSERA_FN coordinates coordinates_of(std::int64_t which) const {
    coordinates at = coordinates::of(shape, which);
    at.mask = {queries.length(at.sequence), keys.length(at.sequence), left, right};
    return at;
  }

  template <Group G>
  TESSERA_FN static void begin_rows(G const& group, coordinates const& at, row_states<G>& state) {
    words<G>::scores::each_row(
        group,
        [&](int row, key_interval& seen, state_type& softmax) {
          seen = at.mask.of(at.first_query + row);
          softmax = softmax_type{}.identity();
        },
        state.seen, state.softmax);
  }

  /// Starts to load keys, if there are more. They are a batch of copies in any case.
  template <Group G>
  TESSERA_FN void begin_keys(G const& group, coordinates const& at, cursor const& next, scratch_type& scratch) const {
    dense<T> const from = keys.tokens(at.sequence, at.key_head);
    for (int part = 0; next.exists() && part * width < shape.channels; ++part) {
      from.begin_load(group, scratch.k(part), next.key(), std::int64_t{part} * width);
    }
    copies_in_flight<G>::commit();
  }
  /// Starts to load values.
  template <Group G>
  TESSERA_FN void begin_values(G const& group, coordinates const& at, std::int64_t first, scratch_type& scratch) const {
    dense<T> const from = values.tokens(at.sequence, at.key_head);
    for (int part = 0; part * width < shape.channels; ++part) {
      from.begin_load(group, scratch.v(part), first, std::int64_t{part} * width);
    }
    copies_in_flight<G>::commit();
  }

  /// Multiplies queries by keys.
  template <Group G>
  TESSERA_FN void make_scores(G const& group, scratch_type& scratch,
                              typename words<G>::scores::sum_tile& scores) const {
    using product = typename words<G>::scores;
    product::clear(group, scores);
    for (int part = 0; part * width < shape.channels; ++part) {
      multiply_staged<product>(group, scratch.q[part], scratch.k(part), scores);
    }
  }

  /// Makes scores of products: in base 2, with the bias, minus infinity where keys are hidden.
  template <Group G>
  TESSERA_FN void mask_scores(G const& group, coordinates const& at, std::int64_t first, row_states<G>& state,
                              typename words<G>::scores::sum_tile& scores) const {
    using product = typename words<G>::scores;
    float const to_base_2 = scale * log2_e;
    if (std::is_same_v<Bias, no_bias> && at.all_see(first, first + columns)) {
      product::each(group, scores, [&](int, int, float& score) { score *= to_base_2; });
      return;
    }
    typename product::template row_values<seen_columns> columns_of;
    product::each_row(
        group,
        [&](int, seen_columns& to, key_interval const& seen) {
          auto const column = [first](std::int64_t key) {
            return static_cast<int>(min(max(key - first, std::int64_t{0}), std::int64_t{columns}));
          };
          to = {column(seen.first), column(seen.end)};
        },
        columns_of, state.seen);
    [[maybe_unused]] Bias const& terms = bias;
    product::each_with_row(
        group, scores,
        [&](int row, int column, float& score, seen_columns const& seen) {
          if (column >= seen.first && column < seen.end) {
            score *= to_base_2;
            if constexpr (!std::is_same_v<Bias, no_bias>) {
              score += terms(at.sequence, at.head, at.first_query + row, first + column) * log2_e;
            }
          } else {
            score = -infinity;
          }
        },
        columns_of);
  }

  /// Adds the values of a tile by their weights.
  template <Group G>
  TESSERA_FN void add_values(G const& group, row_states<G>& state, typename words<G>::scores::sum_tile const& weights,
                             scratch_type& scratch, typename words<G>::results::sum_tile (&totals)[parts]) const {
    using product = typename words<G>::results;
    each_constant<parts>([&, this](auto part) {
      if (part.value * width < shape.channels) {
        product::each_with_row(
            group, totals[part.value], [](int, int, float& total, float factor) { total *= factor; }, state.factor);
        multiply_sums<typename words<G>::scores, product>(group, weights, scratch.v(part.value), totals[part.value]);
      }
    });
  }

  /// Writes results and log-sum-exps.
  template <Group G>
  TESSERA_FN void finish_rows(G const& group, coordinates const& at, row_states<G>& state,
                              typename words<G>::results::sum_tile (&totals)[parts], scratch_type& scratch) const {
    using product = typename words<G>::results;
    typename product::template row_values<finished_row> finished;
    auto const finish = [&, this](int row, finished_row& to, state_type const& softmax) {
      to = at.first_query + row < shape.queries
               ? results.finish(at.sequence, at.head, at.first_query + row, row_type{softmax, softmax.sum})
               : no_attention_row();
    };
    product::each_row(group, finish, finished, state.softmax);
    product::each_row_once(
        group,
        [&, this](int row, finished_row const& of_row) {
          if (at.first_query + row < shape.queries) {
            results.write_log_sum_exp(at.sequence, at.head, at.first_query + row, of_row);
          }
        },
        finished);
    product::each_row_once(
        group, [&](int row, finished_row const& of_row) { scratch.finished[row] = of_row; }, finished);
    each_constant<parts>([&, this](auto part) {
      group.sync();  // all lanes have read what was there before
      product::each(group, totals[part.value],
                    [&](int row, int column, float total) { scratch.total(row, column) = total; });
      group.sync();
      this->write_channels(group, at, part.value * width, scratch);
    });
  }

  /// Writes results of 64 channels.
  template <Group G>
  TESSERA_FN void write_channels(G const& group, coordinates const& at, int first_channel,
                                 scratch_type& scratch) const {
    for (int lane : group) {
      for (int i = lane; i < rows * width; i += lanes) {
        int const row = i / width;
        std::int64_t const query = at.first_query + row;
        int const channel = first_channel + i % width;
        if (query < shape.queries && channel < shape.channels) {
          finished_row const& of_row = scratch.finished[row];
          results.write(at.sequence, at.head, query, channel, of_row.inverse, of_row.share,
                        scratch.total(row, i % width));
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
