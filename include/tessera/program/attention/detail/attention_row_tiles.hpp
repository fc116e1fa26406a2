// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_row_tiles`: attention over quantized operands by row words, which GPUs from sm_80 to sm_89 run. It
/// computes what attention_tiles does (program/attention/quantized_forward.hpp), but for the reference of weights: that
/// of 64 keys and not of 128, so that weights are rounded to other codes.
///
/// A group takes 64 queries of a head and walks over their keys from first to last, 64 at a time:
///
///     x  = query scale * key scale * sum of codes (+ correction + bias)        in base 2; minus infinity where masked
///     w  = 2^(x - r)                                                           r: the largest x of the 64, by row
///     p  = the code nearest to w * highest                                     the weights' static scale, or the
///                                                                              softmax's own (weigh())
///     O  = 2^(r before - r) O + p V
///     l  = 2^(r before - r) l + sum of p
///     L  = 2^(r before - r) L + sum of w
///
///     result = O / l * scale of values (+ their mean)                          lse = ln 2 (r + log2 L) (+ mean score)
///
/// Every 64 keys have their own reference (reduce/online_softmax.hpp), so that weights use the whole range of their
/// codes, whatever the earlier ones are (SageAttention2, arXiv 2411.10958, section 3.4). Results are divided by the sum
/// of the rounded weights, so that they are weighted means of values: if all values are equal, the result is
/// that value.
///
/// Scores and weights stay where the product leaves them, in registers on a GPU (tile/row_tile.hpp). Weights and values
/// are multiplied as fp16, in which codes of 8 bits are exact, and added up in fp32: no second level of sums is needed,
/// as tensor cores would that keep 13 bits of sums of 8-bit floats. Codes of values of a tile are on their way while
/// its scores are made, and those of the next keys while weights are made and values multiplied
/// (tile/copies_in_flight.hpp). The order of additions depends on the executor and the extents alone.
///
/// If the keys are split, a group takes one split of them, and merge_attention merges the partial results.
///
/// Cost for each head: 4 * queries * keys * channels operations and queries * keys exponentials, less what a mask
/// leaves out in whole tiles of 64 x 128.
///
/// sm_80's code on an H100, `sage_attention2`, 16K tokens, TFLOP/s, in a single run: 191 with 128 channels (16
/// heads; causal 183), 171 with 64 (32 heads; 154), 190 with 256 (182). FlashAttention-2 had 367, 313 and 329.
/// attention_tiles, with scores in shared memory, had 13 and 11 with 128 and 64 channels on an H200. With 128
/// channels warps of 32 queries are 0.93 as fast (they spill), three thread blocks a multiprocessor 0.89 (they
/// spill, too). With 64 channels warps of 16 queries are 0.89 as fast, six thread blocks 0.79. Before each code
/// was widened once for all warps, ncu counted 2700 instructions of a warp for 32 queries and 64 keys of 128
/// channels, 450 of them to widen codes and 400 to find addresses; a scheduler issued 0.48 of them in a cycle,
/// because its two warps waited for fixed latencies.
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
#include <tessera/program/attention/detail/score_weights.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/tile/codes/code_widening.hpp>
#include <tessera/tile/codes/value_slot.hpp>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// Whether the groups of keys that share a scale are the same for every 8 keys of a tile, so that a lane whose columns
/// are equal modulo 8 has one scale for all of them.
template <class Groups>
TESSERA_FN constexpr bool scales_repeat() {
  for (std::int64_t key = 0; key < attention_padding; ++key) {
    if (Groups::group_of(key) != Groups::group_of(key % 8)) {
      return false;
    }
  }
  return true;
}

}  // namespace detail

/// Computes attention over quantized operands. Method: an attention_method. T: the type of results. Bias:
/// `bias(sequence, head, query, key)`. Channels: the most channels that a head may have, a multiple of 64.
template <class Method, class T, class Bias, int Channels>
struct attention_row_tiles {
  using softmax_type = typename Method::softmax;
  /// The element that codes of queries and keys lie in.
  using score_code = typename Method::score_code;
  /// The type of a sum of products of codes.
  using score_sum = typename gemm_operand<score_code>::sum_type;
  /// The quantizer of weights.
  using weights = typename Method::value_quantizer;
  using code_type = typename weights::code_type;
  /// The type that weights and values are multiplied as.
  using operand_type = widened_code<code_type>;
  using state_type = typename softmax_type::state_type;
  using row_type = attention_row<state_type>;
  /// Where a group is: its block of queries.
  using coordinates = detail::query_block<64>;
  static constexpr int from_architecture = 800;
  /// From there on programs of one method share the reference of 128 keys, so that their results are close.
  static constexpr int before_architecture = 900;
  static constexpr int lanes = Channels <= 64 ? 64 : 128;  ///< a warp takes 32 queries where registers suffice, or 16
  static constexpr int rows = 64;                          ///< queries of a group
  static constexpr int tile_keys = 128;                    ///< keys of a tile of codes of values, and of a list
  static constexpr int columns = 64;                       ///< keys at a time
  static constexpr int score_width = Channels == 128 ? 128 : 64;    ///< channels of queries and keys in one tile
  static constexpr int score_parts = Channels / score_width;        ///< tiles of queries
  static constexpr int depth = score_width / codes_in<score_code>;  ///< elements of so many channels
  static constexpr int width = 64;                ///< channels of values that are multiplied at a time
  static constexpr int parts = Channels / width;  ///< parts of so many channels
  /// How many scales of keys a group has at a time: see scales_repeat().
  static constexpr int key_scales = detail::scales_repeat<typename Method::key_groups>() ? 8 : columns;
  static constexpr float log2_e = 1.4426950408889634F;
  /// Whether something is added to scores by a function.
  static constexpr bool has_bias = !std::is_same_v<Bias, no_bias>;
  static_assert(parts * width == Channels && tile_keys == attention_padding,
                "tessera: attention_row_tiles has a whole number of 64 channels");

  struct scratch_type {
    staged_tile<score_code, rows, depth> q[score_parts];  ///< codes of queries
    /// Codes of keys and values while there are any, then results.
    union {
      struct {
        staged_tile<score_code, columns, depth> k[score_parts];  ///< codes of keys
        staged_tile<code_type, Channels, columns> v;             ///< codes of values, by channels and slots
        union {
          float biases[has_bias ? rows * (columns + 1) : 1];        ///< what is added to scores, until these are made
          staged_tile<operand_type, width, columns> values[parts];  ///< widened, by channels and tokens
        };
      } codes;
      float totals[rows * (Channels + 1)];  ///< sums, rows one number further apart than long
    };
    float key_scale[key_scales];   ///< scales of the keys
    float kept_scale[key_scales];  ///< those by which scores are still to be multiplied when they are kept
    float correction[columns];     ///< what is added to the scores of each key
    finished_row finished[rows];   ///< what results of each row are made with

    /// The sum of a channel.
    TESSERA_FN float& total(int row, int channel) { return totals[row * (Channels + 1) + channel]; }
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
  TESSERA_FN constexpr std::int64_t query_blocks() const { return coordinates::count(shape); }
  TESSERA_FN constexpr std::int64_t groups() const {
    return shape.batch * shape.query_heads * query_blocks() * partials.splits();
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    using row_words = words<G>;
    using copies = copies_in_flight<G>;
    coordinates const at = coordinates_of(which / partials.splits());
    row_states<G> state;
    begin_rows(group, at, state);
    typename row_words::results::sum_tile totals[parts];
    each_constant<parts>([&](auto part) { row_words::results::clear(group, totals[part.value]); });
    begin_queries(group, at, scratch);
    cursor next(at, list, partials.splits(), which % partials.splits());
    key_sources const from = sources_of(at);
    key_terms<G> terms;
    begin_keys(group, from, next, terms, scratch);
    while (next.exists()) {
      std::int64_t const now = next.key();
      group.sync();  // all lanes have read the values before
      put_terms(group, terms, scratch);
      put_biases(group, at, now, scratch);
      begin_values(group, from, now, scratch);
      copies::template await<1>();
      group.sync();  // queries and keys are there
      typename row_words::weights::sum_tile scores;
      make_scores(group, state, scratch, scores);
      next.move_on(at, list);
      group.sync();  // all lanes have read the keys
      begin_keys(group, from, next, terms, scratch);
      make_weights(group, at, now, state, scratch, scores);
      copies::template await<1>();
      group.sync();  // codes of values are there
      code_widening<code_type, G>::widen(group, scratch.codes.v, scratch.codes.values);
      group.sync();  // all lanes have widened them
      add_values(group, state, scores, scratch, totals);
    }
    copies::template await<0>();  // queries that had no keys
    finish_rows(group, at, which % partials.splits(), state, totals, scratch);
  }

 private:
  /// Where a group is in the keys of its split.
  using cursor = detail::key_cursor<tile_keys, columns>;

  /// The products of a group.
  template <class G>
  struct words {
    static constexpr int step = 32 / static_cast<int>(sizeof(operand_type));
    using products = row_tile<score_code, tessera::shape<rows, columns, 32>, G>;     ///< queries by keys
    using weights = row_tile<operand_type, tessera::shape<rows, columns, step>, G>;  ///< scores, then weights
    using results = row_tile<operand_type, tessera::shape<rows, width, step>, G>;    ///< weights by values
    static_assert(RowTile<products> && RowTile<weights> && RowTile<results>);
  };
  /// The softmax of a group's rows.
  template <class G>
  using softmax_of = detail::score_weights<softmax_type, weights, typename words<G>::weights>;
  /// What is known of the rows of a group.
  template <class G>
  struct row_states : softmax_of<G>::rows {
    typename softmax_of<G>::template each<float> query_scale;  ///< the scale of the row's query
    typename softmax_of<G>::template each<float> kept_scale;   ///< the one by which it is multiplied when it is kept
  };
  /// What a lane read of the next keys, before scratch is free for it.
  template <class G>
  struct key_terms {
    per_lane<float, G> scale;
    per_lane<float, G> correction;
  };

  TESSERA_FN coordinates coordinates_of(std::int64_t which) const {
    coordinates at = coordinates::of(shape, which);
    at.mask = {length_of(query_lengths, at.sequence, shape.queries), length_of(key_lengths, at.sequence, shape.keys),
               left, right};
    return at;
  }

  template <Group G>
  TESSERA_FN void begin_rows(G const& group, coordinates const& at, row_states<G>& state) const {
    softmax_of<G>::begin(group, state);
    words<G>::products::each_row(
        group,
        [&](int row, float& scale, float& kept_scale) {
          std::int64_t const query = at.first_query + row;
          scale = query < shape.queries ? queries.scales(at.sequence, at.head, Method::query_groups::group_of(query))
                                        : 0.0F;
          kept_scale = keeps_scaled() ? 1.0F : scale;
        },
        state.query_scale, state.kept_scale);
  }

  /// What a group reads of keys and values.
  struct key_sources {
    dense<score_code> keys;           ///< codes of keys
    view<code_type const, 3> values;  ///< codes of values: tiles x channels x slots
    view<float const, 1> scales;      ///< scales of keys
    array_view<float> corrections;    ///< what is added to scores, by value_slot(); null: nothing
  };
  TESSERA_FN key_sources sources_of(coordinates const& at) const {
    return {{keys.codes[at.sequence][at.key_head]},
            values.codes[at.sequence][at.key_head],
            keys.scales[at.sequence][at.key_head],
            queries.corrections.data == nullptr ? array_view<float>{}
                                                : queries.corrections[at.sequence][at.head][at.number()]};
  }

  /// Whether a part of the channels of queries and keys exists.
  TESSERA_FN bool has_score_part(int part) const { return part * score_width < shape.channels; }

  /// Starts to load codes of queries.
  template <Group G>
  TESSERA_FN void begin_queries(G const& group, coordinates const& at, scratch_type& scratch) const {
    dense<score_code> const from{queries.codes[at.sequence][at.head]};
    for (int part = 0; part < score_parts && has_score_part(part); ++part) {
      from.begin_load(group, scratch.q[part], at.first_query, std::int64_t{part} * depth);
    }
  }
  /// Starts to load codes of keys and reads their terms, if there are more. They are a batch of copies in any case.
  template <Group G>
  TESSERA_FN void begin_keys(G const& group, key_sources const& from, cursor const& next, key_terms<G>& terms,
                             scratch_type& scratch) const {
    if (next.exists()) {
      for (int part = 0; part < score_parts && has_score_part(part); ++part) {
        from.keys.begin_load(group, scratch.codes.k[part], next.key(), std::int64_t{part} * depth);
      }
      for (int lane : group) {
        if (lane < key_scales) {
          terms.scale[lane] = from.scales(Method::key_groups::group_of(next.key() + lane));
        }
        if (lane < columns && from.corrections.data != nullptr) {
          terms.correction[lane] = from.corrections[value_slot(next.key() + lane)];
        }
      }
    }
    copies_in_flight<G>::commit();
  }
  /// Leaves the terms of keys in scratch.
  template <Group G>
  TESSERA_FN void put_terms(G const& group, key_terms<G> const& terms, scratch_type& scratch) const {
    for (int lane : group) {
      if (lane < key_scales) {
        scratch.key_scale[lane] = terms.scale[lane];
        scratch.kept_scale[lane] = keeps_scaled() ? 1.0F : terms.scale[lane];
      }
      if (lane < columns && queries.corrections.data != nullptr) {
        scratch.correction[lane] = terms.correction[lane];
      }
    }
  }
  /// Leaves in scratch what the bias adds to scores, in base 2; 0 for keys that a query does not see. Neighbouring
  /// lanes take neighbouring keys, and the user's function is compiled once, not for each of a lane's scores.
  template <Group G>
  TESSERA_FN void put_biases(G const& group, coordinates const& at, std::int64_t first, scratch_type& scratch) const {
    if constexpr (has_bias) {
      for (int lane : group) {
        for (int i = lane; i < rows * columns; i += lanes) {
          int const row = i / columns;
          std::int64_t const key = first + i % columns;
          key_interval const seen = at.mask.of(at.first_query + row);
          scratch.codes.biases[row * (columns + 1) + i % columns] =
              key >= seen.first && key < seen.end ? bias(at.sequence, at.head, at.first_query + row, key) * log2_e
                                                  : 0.0F;
        }
      }
    }
  }
  /// Starts to load codes of values.
  template <Group G>
  TESSERA_FN void begin_values(G const& group, key_sources const& from, std::int64_t first,
                               scratch_type& scratch) const {
    dense<code_type> const codes{from.values[first / tile_keys]};
    codes.begin_load(group, scratch.codes.v, 0, first % tile_keys);
    copies_in_flight<G>::commit();
  }

  /// Whether scores are scaled before they are kept: where something is added to them, and where codes are floats,
  /// whose sums are no whole numbers as those are that softmaxes get before they are scaled.
  TESSERA_FN bool keeps_scaled() const {
    return !std::is_integral_v<score_sum> || has_bias || queries.corrections.data != nullptr;
  }
  /// Multiplies queries by keys, and makes scores of the sums.
  template <Group G>
  TESSERA_FN void make_scores(G const& group, row_states<G>& state, scratch_type& scratch,
                              typename words<G>::weights::sum_tile& scores) const {
    using product = typename words<G>::products;
    typename product::sum_tile sums;
    product::clear(group, sums);
    each_constant<score_parts>([&](auto part) {
      if (has_score_part(part.value)) {
        multiply_staged<product>(group, scratch.q[part.value], scratch.codes.k[part.value], sums);
      }
    });
    if (!keeps_scaled()) {
      product::template map_sums<typename words<G>::weights>(
          group, sums, scores, [](int, int, score_sum sum) { return static_cast<float>(sum); });
      return;
    }
    product::template map_sums<typename words<G>::weights>(
        group, sums, scores,
        [&](int row, int column, score_sum sum, float query_scale) {
          float score = static_cast<float>(sum) * (query_scale * detail::column_scale(scratch.key_scale, column));
          if (queries.corrections.data != nullptr) {
            score += scratch.correction[column];
          }
          if constexpr (has_bias) {
            score += scratch.codes.biases[row * (columns + 1) + column];
          }
          return score;
        },
        state.query_scale);
  }

  /// Turns scores into the numbers that weights' codes stand for.
  template <Group G>
  TESSERA_FN void make_weights(G const& group, coordinates const& at, std::int64_t first, row_states<G>& state,
                               scratch_type const& scratch, typename words<G>::weights::sum_tile& scores) const {
    if (!at.all_see(first, first + columns)) {
      softmax_of<G>::hide(group, at, first, scores);
    }
    softmax_of<G>::make(group, state.kept_scale, scratch.kept_scale, first < tile_keys, state, scores);
  }

  /// Adds the values of a tile by their weights.
  template <Group G>
  TESSERA_FN void add_values(G const& group, row_states<G>& state, typename words<G>::weights::sum_tile const& numbers,
                             scratch_type& scratch, typename words<G>::results::sum_tile (&totals)[parts]) const {
    using product = typename words<G>::results;
    each_constant<parts>([&](auto part) {
      product::each_with_row(
          group, totals[part.value], [](int, int, float& total, float factor) { total *= factor; }, state.factor);
    });
    multiply_sums_transposed<typename words<G>::weights, product>(
        group, numbers, scratch.codes.values,
        static_cast<int>(divide_up(shape.channels_of_values(), std::int64_t{width})), totals);
  }

  /// Writes results and log-sum-exps, or the partial results of a split.
  template <Group G>
  TESSERA_FN void finish_rows(G const& group, coordinates const& at, std::int64_t split, row_states<G>& state,
                              typename words<G>::results::sum_tile (&totals)[parts], scratch_type& scratch) const {
    using product = typename words<G>::results;
    softmax_of<G>::merge(group, state);
    product::each_row_once(
        group,
        [&](int row, state_type const& softmax, float rounded) {
          scratch.finished[row] = finish_row(at, split, at.first_query + row, {softmax, rounded});
        },
        state.softmax, state.rounded);
    group.sync();  // all lanes have read what was there before
    each_constant<parts>([&](auto part) {
      product::each(group, totals[part.value], [&](int row, int column, float total) {
        scratch.total(row, part.value * width + column) = total * code_widening<code_type, G>::unit();
      });
    });
    group.sync();
    write_totals(group, at, split, scratch);
  }

  /// Writes a row's log-sum-exp, or its part of a split, and gives what results are made with.
  TESSERA_FN finished_row finish_row(coordinates const& at, std::int64_t split, std::int64_t query,
                                     row_type const& row) const {
    if (query >= shape.queries) {
      return no_attention_row();
    }
    if (partials.rows.data != nullptr) {
      partials.rows(split, at.sequence, at.head, query) = row;
      return no_attention_row();
    }
    finished_row const finished = results.finish(at.sequence, at.head, query, row);
    results.write_log_sum_exp(at.sequence, at.head, query, finished);
    return finished;
  }

  /// Writes the totals of all channels.
  template <Group G>
  TESSERA_FN void write_totals(G const& group, coordinates const& at, std::int64_t split, scratch_type& scratch) const {
    for (int lane : group) {
      for (int i = lane; i < rows * Channels; i += lanes) {
        write_total(at, split, i / Channels, i % Channels, scratch.total(i / Channels, i % Channels), scratch);
      }
    }
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
      finished_row const& of_row = scratch.finished[row];
      results.write(at.sequence, at.head, query, channel, of_row.inverse, of_row.share, total);
    }
  }
};

}  // namespace v0
}  // namespace tessera
