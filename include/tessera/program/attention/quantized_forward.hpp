// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_tiles`: computes softmax(scores) * values over quantized operands, without the scores in memory. It is
/// the portable program of algorithm/attention/attention.hpp.
///
/// A group takes 64 queries of a head and walks over their keys from first to last, 128 at a time:
///
///     x  = query scale * key scale * sum of codes (+ correction + bias)        in base 2; minus infinity where masked
///     w  = 2^(x - r)                                                           r: the tile's largest x, by row
///     p  = the code nearest to w * highest                                     the weights' static scale, or the
///                                                                              softmax's own (weigh())
///     O  = 2^(r before - r) O + p V                                            p V summed from zero for each tile
///     l  = 2^(r before - r) l + sum of p
///     L  = 2^(r before - r) L + sum of w
///
///     result = O / l * scale of values (+ their mean)                          lse = ln 2 (r + log2 L) (+ mean score)
///
/// This is two-level accumulation (SageAttention2, arXiv 2411.10958, section 3.4): tensor cores that keep 13 bits of
/// sums of 8-bit floats add up no more than a tile. Each tile has its own reference (reduce/online_softmax.hpp), so
/// that weights use the whole range of their codes, whatever the earlier tiles are. Results are divided by the sum of
/// the rounded weights, so that they are weighted means of values: if all values are equal, the result is that value. A
/// lane adds the weights of 64 columns in order. So the order of additions depends on the extents alone.
///
/// If the keys are split, a group takes one split of them, and merge_attention merges the partial results.
///
/// Cost for each head: 4 * queries * keys * channels operations and queries * keys exponentials, less what a mask
/// leaves out in whole tiles of 64 x 128.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/mask.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/tile/codes/value_slot.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The operand that a weight's code is multiplied as. Codes of 8-bit integers become fp16: they are exact in it, and
/// the sums of a tile are exact in fp32.
template <class Code>
struct weight_operand {
  using type = Code;
  TESSERA_FN static type of(Code code) { return code; }
  TESSERA_FN static float value(Code code) { return load(code); }
};
template <>
struct weight_operand<std::int8_t> {
  using type = float16;
  TESSERA_FN static type of(std::int8_t code) { return store<float16>(static_cast<float>(code)); }
  TESSERA_FN static float value(std::int8_t code) { return static_cast<float>(code); }
};

}  // namespace detail

/// Computes attention over quantized operands. Method: an attention_method. T: the type of results. Bias:
/// `bias(sequence, head, query, key)`. Channels: the most channels that a head of values may have, a multiple of 64.
template <class Method, class T, class Bias, int Channels>
struct attention_tiles {
  using softmax_type = typename Method::softmax;
  /// The element that codes of queries and keys lie in.
  using score_code = typename Method::score_code;
  /// The type of a sum of products of codes.
  using score_sum = typename gemm_operand<score_code>::sum_type;
  /// The quantizer of weights.
  using weights = typename Method::value_quantizer;
  using code_type = typename weights::code_type;
  using operand = detail::weight_operand<code_type>;
  using operand_type = typename operand::type;
  using state_type = typename softmax_type::state_type;
  using row_type = attention_row<state_type>;
  static constexpr int lanes = 128;
  static constexpr int rows = 64;                             ///< queries of a group
  static constexpr int columns = 128;                         ///< keys of a tile
  static constexpr int depth = 64 / codes_in<score_code>;     ///< elements of 64 channels, staged at a time for scores
  static constexpr int width = 64;                            ///< channels of values that are staged at a time
  static constexpr int parts = Channels / width;              ///< parts of 64 channels of values
  static constexpr int row_columns = columns * rows / lanes;  ///< columns of a row that a lane takes
  static constexpr float log2_e = 1.4426950408889634F;
  static_assert(parts * width == Channels && columns == attention_padding,
                "tessera: attention_tiles has a whole number of 64 channels");

  /// The scratch of a group. Rows of scores lie one element further apart than they are long, so that lanes that each
  /// read a row use different banks.
  struct scratch_type {
    staged_tile<score_code, rows, depth> q;       ///< codes of queries
    staged_tile<score_code, columns, depth> k;    ///< codes of keys
    staged_tile<operand_type, rows, columns> p;   ///< codes of weights
    staged_tile<operand_type, width, columns> v;  ///< codes of values, by channels
    /// Scores in base 2, before they are multiplied by score_scale(); minus infinity where masked.
    float scores[rows * (columns + 1)];
    float query_scale[rows];   ///< scale of each row
    float key_scale[columns];  ///< scale of each column
    float largest[lanes];      ///< the largest score that each lane has seen
    float factor[rows];        ///< what earlier sums of each row are multiplied by
    row_type second[rows];     ///< the state of the second lane of each row
    float inverse[rows];       ///< finished_row::inverse of each row
    float share[rows];         ///< finished_row::share of each row
    /// The score of a query and a key of the tiles.
    TESSERA_FN float& score(int row, int column) { return scores[row * (columns + 1) + column]; }
  };

  attention_shape shape;
  quantized_queries<score_code> queries;    ///< codes and scales of queries
  quantized_keys<score_code> keys;          ///< codes and scales of keys
  quantized_value_heads<code_type> values;  ///< codes and scales of values
  sequence_lengths query_lengths;
  sequence_lengths key_lengths;
  std::int64_t left;          ///< attention_mask::left
  std::int64_t right;         ///< attention_mask::right
  attention_block_list list;  ///< tiles of keys that are seen; null: all
  Bias bias;                  ///< added to scores, natural
  attention_writer<Method, T> results;
  attention_partials<state_type> partials;  ///< where splits of the keys leave their results, if there are several

  /// How many blocks of 64 queries a head has.
  TESSERA_FN constexpr std::int64_t query_blocks() const { return divide_up(shape.queries, std::int64_t{rows}); }
  TESSERA_FN constexpr std::int64_t groups() const {
    return shape.batch * shape.query_heads * query_blocks() * partials.splits();
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    using product =
        gemm_tile<operand_type, tessera::shape<rows, width, 32 / static_cast<int>(sizeof(operand_type))>, G>;
    coordinates const at = coordinates_of(which);
    per_lane<state_type, G> state;
    per_lane<float, G> rounded;
    typename product::sum_tile totals[parts];
    for (int part = 0; part < parts; ++part) {
      product::clear(group, totals[part]);
    }
    for (int lane : group) {
      state[lane] = softmax_type{}.identity();
      rounded[lane] = 0.0F;
      if (lane < rows) {
        std::int64_t const query = at.first_query + lane;
        scratch.query_scale[lane] =
            query < shape.queries ? queries.scales(at.sequence, at.head, Method::query_groups::group_of(query)) : 0.0F;
      }
    }
    tile_range const tiles = tiles_of(at, which % partials.splits());
    for (std::int64_t i = tiles.first; i < tiles.end; ++i) {
      std::int64_t const tile = tile_at(at, i);
      if (tile < tiles.lowest || tile >= tiles.beyond) {
        continue;
      }
      make_scores(group, at, tile * columns, scratch);
      make_weights(group, state, rounded, tile == 0, scratch);
      for (int part = 0; part < parts; ++part) {
        if (part * width < shape.channels_of_values()) {
          add_values<product>(group, at, tile * columns, part, scratch, totals[part]);
        }
      }
    }
    finish_rows(group, at, which % partials.splits(), state, rounded, scratch);
    for (int part = 0; part < parts; ++part) {
      product::each(group, totals[part], put<float>{scratch});
      group.sync();
      write_channels(group, at, which % partials.splits(), part * width, scratch);
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

  /// The tiles of a split: of the list, or of all tiles in order, those from `first` to `end` - 1. Of these only tiles
  /// from `lowest` to `beyond` - 1 count.
  struct tile_range {
    std::int64_t first;
    std::int64_t end;
    std::int64_t lowest;
    std::int64_t beyond;
  };

  TESSERA_FN tile_range tiles_of(coordinates const& at, std::int64_t split) const {
    key_interval const seen = at.seen();
    std::int64_t const lowest = seen.first / columns;
    std::int64_t const beyond = divide_up(seen.end, std::int64_t{columns});
    bool const has_list = list.counts.data != nullptr;
    std::int64_t const begin = has_list ? 0 : lowest;
    std::int64_t const count = has_list ? list.count(at.sequence, at.head, at.first_query / rows) : beyond - lowest;
    std::int64_t const each = divide_up(max(count, std::int64_t{0}), partials.splits());
    return {begin + split * each, begin + min((split + 1) * each, count), lowest, beyond};
  }
  TESSERA_FN std::int64_t tile_at(coordinates const& at, std::int64_t i) const {
    return list.counts.data != nullptr ? list.tiles(at.sequence, at.head, at.first_query / rows, i) : i;
  }

  TESSERA_FN coordinates coordinates_of(std::int64_t number) const {
    std::int64_t const which = number / partials.splits();
    std::int64_t const head = which / query_blocks() % shape.query_heads;
    std::int64_t const sequence = which / query_blocks() / shape.query_heads;
    return {
        sequence,
        head,
        head / (shape.query_heads / shape.key_heads),
        which % query_blocks() * rows,
        {length_of(query_lengths, sequence, shape.queries), length_of(key_lengths, sequence, shape.keys), left, right}};
  }

  /// Fills the tile of scores. Ends with a sync.
  template <Group G>
  TESSERA_FN void make_scores(G const& group, coordinates const& at, std::int64_t first, scratch_type& scratch) const {
    using product = gemm_tile<score_code, tessera::shape<rows, columns, 32>, G>;
    dense<score_code> const q{queries.codes[at.sequence][at.head]};
    dense<score_code> const k{keys.codes[at.sequence][at.key_head]};
    typename product::sum_tile sums;
    product::clear(group, sums);
    for (std::int64_t element = 0; element < q.columns(); element += depth) {
      group.sync();  // all lanes have read the tiles before
      q.load(group, scratch.q, at.first_query, element);
      k.load(group, scratch.k, first, element);
      multiply_staged<product>(group, scratch.q, scratch.k, sums);
    }
    for (int lane : group) {
      scratch.key_scale[lane] = keys.scales(at.sequence, at.key_head, Method::key_groups::group_of(first + lane));
    }
    group.sync();
    product::each(group, sums, put<score_sum>{scratch});
    group.sync();
    array_view<float> const corrections = corrections_of(at);
    for (int lane : group) {
      scratch.largest[lane] = finish_scores(at, first, corrections, lane, scratch);
    }
    group.sync();
  }
  /// What is added to the scores of a block's queries and each key; null: nothing.
  TESSERA_FN array_view<float> corrections_of(coordinates const& at) const {
    return queries.corrections.data == nullptr ? array_view<float>{}
                                               : queries.corrections[at.sequence][at.head][at.first_query / rows];
  }

  /// Makes a lane's sums of products to scores, and returns the largest of them, scaled.
  TESSERA_FN float finish_scores(coordinates const& at, std::int64_t first, array_view<float> corrections, int lane,
                                 scratch_type& scratch) const {
    int const row = lane % rows;
    std::int64_t const query = at.first_query + row;
    key_interval const seen = at.mask.of(query);
    float largest = -infinity;
    for (int i = 0; i < row_columns; ++i) {
      int const column = lane / rows * row_columns + i;
      std::int64_t const key = first + column;
      float score = -infinity;
      if (key >= seen.first && key < seen.end) {
        score = scratch.score(row, column);
        if (keeps_scaled()) {
          score *= scratch.query_scale[row] * scratch.key_scale[column];
          if (corrections.data != nullptr) {
            score += corrections[value_slot(key)];
          }
          if constexpr (!std::is_same_v<Bias, no_bias>) {
            score += bias(at.sequence, at.head, query, key) * log2_e;
          }
        }
        largest = max(largest, score_scale(scratch, row, column) * score);
      }
      scratch.score(row, column) = score;
    }
    return largest;
  }

  /// Whether scores are scaled before they are kept: where something is added to them, and where codes are floats,
  /// whose sums are no whole numbers as those are that softmaxes get before they are scaled.
  TESSERA_FN bool keeps_scaled() const {
    return !std::is_integral_v<score_sum> || !std::is_same_v<Bias, no_bias> || queries.corrections.data != nullptr;
  }
  /// The factor that a kept score is still to be multiplied by.
  TESSERA_FN float score_scale(scratch_type const& scratch, int row, int column) const {
    return keeps_scaled() ? 1.0F : scratch.query_scale[row] * scratch.key_scale[column];
  }

  /// Turns scores into weights, and adds them to the states of their rows. Ends with a sync.
  template <Group G>
  TESSERA_FN void make_weights(G const& group, per_lane<state_type, G>& state, per_lane<float, G>& rounded,
                               bool is_first, scratch_type& scratch) const {
    for (int lane : group) {
      int const row = lane % rows;
      softmax_type const softmax;
      float const factor = softmax.turn(state[lane], max(scratch.largest[row], scratch.largest[row + rows]));
      rounded[lane] *= factor;
      if (lane < rows) {
        scratch.factor[row] = factor;
      }
      for (int i = 0; i < row_columns; ++i) {
        int const column = lane / rows * row_columns + i;
        auto const [code, weight] = softmax.template weigh<weights>(state[lane], score_scale(scratch, row, column),
                                                                    scratch.score(row, column), is_first);
        state[lane].sum += weight;
        rounded[lane] += operand::value(code);
        scratch.p(row, value_slot(column)) = operand::of(code);
      }
    }
    group.sync();
  }

  template <class Product, Group G>
  TESSERA_FN void add_values(G const& group, coordinates const& at, std::int64_t first, int part, scratch_type& scratch,
                             typename Product::sum_tile& totals) const {
    group.sync();  // all lanes have read the values before
    load_values(group, values.codes[at.sequence][at.key_head][first / columns], part * width, scratch.v);
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

  /// Loads the values of a tile and 64 channels. Channels beyond the last become zeros. Ends with a sync.
  template <Group G>
  TESSERA_FN void load_values(G const& group, matrix_view<code_type const> codes, std::int64_t first_channel,
                              staged_tile<operand_type, width, columns>& tile) const {
    if constexpr (std::is_same_v<code_type, operand_type>) {
      dense<code_type>{codes}.load(group, tile, first_channel, 0);
    } else {
      for (int lane : group) {
        for (int channel = 0; channel < width; ++channel) {
          bool const is_inside = first_channel + channel < codes.extent(0);
          tile(channel, lane) = is_inside ? operand::of(codes(first_channel + channel, lane)) : operand_type{};
        }
      }
      group.sync();
    }
  }

  /// Makes what results are multiplied by, and writes log-sum-exps. Ends with a sync.
  template <Group G>
  TESSERA_FN void finish_rows(G const& group, coordinates const& at, std::int64_t split,
                              per_lane<state_type, G> const& state, per_lane<float, G> const& rounded,
                              scratch_type& scratch) const {
    for (int lane : group) {
      if (lane >= rows) {
        scratch.second[lane - rows] = {state[lane], rounded[lane]};
      }
    }
    group.sync();
    for (int lane : group) {
      if (lane < rows && at.first_query + lane < shape.queries) {
        row_type row{state[lane], rounded[lane] + scratch.second[lane].rounded};
        row.state.sum += scratch.second[lane].state.sum;  // both lanes have the same reference
        finish_row(at, split, lane, row, scratch);
      }
    }
    group.sync();
  }

  TESSERA_FN void finish_row(coordinates const& at, std::int64_t split, int lane, row_type const& row,
                             scratch_type& scratch) const {
    std::int64_t const query = at.first_query + lane;
    if (partials.rows.data != nullptr) {
      partials.rows(split, at.sequence, at.head, query) = row;
      return;
    }
    finished_row const finished = results.finish(at.sequence, at.head, query, row);
    scratch.inverse[lane] = finished.inverse;
    scratch.share[lane] = finished.share;
    results.write_log_sum_exp(at.sequence, at.head, query, finished);
  }

  /// Keeps sums where scores are. What uses them then is compiled once, not for each of a lane's sums.
  template <class Sum>
  struct put {
    scratch_type& scratch;
    TESSERA_FN void operator()(int row, int column, Sum sum) const {
      scratch.score(row, column) = static_cast<float>(sum);
    }
  };

  /// Writes the totals of 64 channels. Ends with a sync.
  template <Group G>
  TESSERA_FN void write_channels(G const& group, coordinates const& at, std::int64_t split, int first_channel,
                                 scratch_type& scratch) const {
    for (int lane : group) {
      for (int i = lane; i < rows * width; i += lanes) {
        write_total(at, split, i / width, first_channel + i % width, scratch.score(i / width, i % width), scratch);
      }
    }
    group.sync();
  }

  TESSERA_FN void write_total(coordinates const& at, std::int64_t split, int row, int channel, float total,
                              scratch_type const& scratch) const {
    std::int64_t const query = at.first_query + row;
    if (query >= shape.queries || channel >= shape.channels_of_values()) {
      return;
    }
    if (partials.rows.data != nullptr) {
      partials.totals(split, at.sequence, at.head, query, channel) = total;
    } else {
      results.write(at.sequence, at.head, query, channel, scratch.inverse[row], scratch.share[row], total);
    }
  }
};

}  // namespace v0
}  // namespace tessera
