// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_tiles`: computes softmax(scores) * values over quantized operands by row words, without the scores in
/// memory. It is the portable program of algorithm/attention/attention.hpp, and that of GPUs without wgmma for what
/// attention/forward_by_warps.cuh does not take: lists, other softmaxes and codes, more than 128 channels.
///
/// A group takes 64 queries of a head and walks over their keys from first to last, 128 at a time:
///
///     x  = query scale * key scale * sum of codes (+ correction + bias)        in base 2; minus infinity where masked
///     w  = 2^(x - r)                                                           r: the tile's largest x, by row
///     p  = the code nearest to w * highest                                     the weights' static scale, or the
///                                                                              softmax's own (weigh())
///     O  = 2^(r before - r) O + p V
///     l  = 2^(r before - r) l + sum of p
///     L  = 2^(r before - r) L + sum of w
///
///     result = O / l * scale of values (+ their mean)                          lse = ln 2 (r + log2 L) (+ mean score)
///
/// Each tile of 128 keys has its own reference (reduce/online_softmax.hpp), so that weights use the whole range of
/// their codes, whatever the earlier ones are (SageAttention2, arXiv 2411.10958, section 3.4). Results are divided by
/// the sum of the rounded weights, so that they are weighted means of values: if all values are equal, the result is
/// that value.
///
/// Scores and weights stay where the product leaves them, in registers on a GPU (tile/row_tile.hpp). Weights and values
/// are multiplied as fp16, in which codes of 8 bits are exact, and added up in fp32: no second level of sums is needed,
/// as tensor cores would that keep 13 bits of sums of 8-bit floats. Half a tile's keys, and then half its values, are
/// multiplied at a time, while codes of the next are on their way (tile/copies_in_flight.hpp). The order of additions
/// depends on the executor and the extents alone.
///
/// Batches of copies are counted here, and not by a ring of tile/pipelined.hpp: a ring fills a stage again when it
/// has been read, but values are widened where a tile's other keys were, so that the next tile's cannot be copied
/// there before all values have been multiplied. Memory of their own would take 8 KiB more of a thread block with 128
/// channels.
///
/// A CPU with AVX2 and FMA multiplies codes where they are staged, by AVX-512 if it has that, and weighs eight scores
/// at a time: weights never become fp16, which they are exact in, and results have the bits of the loops for other
/// processors.
///
/// If the keys are split, a group takes one split of them, and merge_attention merges the partial results.
///
/// Cost for each head: 4 * queries * keys * channels operations and queries * keys exponentials, less what a mask
/// leaves out in whole tiles of 64 x 128.
///
/// sm_80's code on an H200, `sage_attention2`, 16K tokens, TFLOP/s: 223 with 128 channels (16 heads; causal 210), 182
/// with 64 (32 heads; 172), 223 with 256 (215). FlashAttention-2 had 350, 313 and 322. Single runs of an earlier form,
/// which had 215, 174 and 215: with weights kept as numbers, not as operands, until they are multiplied, 212, 170 and
/// 176, as registers spill; with 256 channels and keys staged 64 channels at a time 190; with 128 channels and three
/// thread blocks a multiprocessor 199; with 64 channels, before it had fewer instructions, 159 with three thread
/// blocks, 153 with two, 145 with four or with warps of 32 queries. Of that form ncu counted 2400 instructions of a
/// warp for 16 queries and 128 keys of 128 channels, and 1700 with 64; a scheduler issued 0.44 and 0.49 of them in a
/// cycle, because its two warps waited for fixed latencies a third of the time, and for shared memory a sixth.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/key_cursor.hpp>
#include <tessera/program/attention/detail/key_terms.hpp>
#include <tessera/program/attention/detail/quantized_task.hpp>
#include <tessera/program/attention/detail/score_weights.hpp>
#include <tessera/program/attention/detail/split_writer.hpp>
#include <tessera/program/attention/detail/weights_in_memory.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/tile/codes/code_widening.hpp>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Computes attention over quantized operands. Method: an attention_method. T: the type of results. Bias:
/// `bias(sequence, head, query, key)`. Channels: the most channels that a head may have, a multiple of 64.
template <class Method, class T, class Bias, int Channels>
struct attention_tiles : detail::quantized_task<Method, T, typename Method::value_quantizer::code_type> {
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
  static constexpr int lanes = 128;
  static constexpr int blocks_per_multiprocessor = Channels == 64 ? 3 : 1;  ///< registers are for so many
  static constexpr int rows = 64;                                           ///< queries of a group
  static constexpr int tile_keys = 128;                             ///< keys with one reference; a tile of a list
  static constexpr int columns = 64;                                ///< keys that are multiplied at a time
  static constexpr int halves = tile_keys / columns;                ///< how many times that is for a tile
  static constexpr int score_width = Channels >= 128 ? 128 : 64;    ///< channels of queries and keys in one tile
  static constexpr int score_parts = Channels / score_width;        ///< tiles of queries
  static constexpr int depth = score_width / codes_in<score_code>;  ///< elements of so many channels
  static constexpr int width = 64;  ///< channels of values that are multiplied at a time
  /// Channels of values whose codes are staged at a time. Codes of 16 bits are as large as widened ones.
  static constexpr int staged_channels = Channels * sizeof(code_type) <= 256 ? Channels : Channels / 2;
  static constexpr int parts = staged_channels / width;           ///< parts of `width` channels of these
  static constexpr int value_tiles = Channels / staged_channels;  ///< so many times are channels staged
  /// The scales of a tile's keys, and what is added to their scores.
  using terms_type = detail::key_terms<Method, lanes, tile_keys>;
  static constexpr float log2_e = 1.4426950408889634F;
  /// Whether something is added to scores by a function.
  static constexpr bool has_bias = !std::is_same_v<Bias, no_bias>;
  /// Whether scores are scaled before they are kept: where something is added to them, and where codes are floats,
  /// whose sums are no whole numbers as those are that softmaxes get before they are scaled.
  static constexpr bool keeps_scaled = !std::is_integral_v<score_sum> || has_bias || terms_type::has_corrections;
  static_assert(value_tiles * parts * width == Channels && tile_keys == attention_padding,
                "tessera: attention_tiles has a whole number of 64 channels");

  /// Codes of the keys of half a tile, by channels.
  using key_codes = staged_tile<score_code, columns, depth>[score_parts];

  struct scratch_type {
    staged_tile<score_code, rows, depth> q[score_parts];  ///< codes of queries
    /// Codes of keys and values while there are any, then results.
    union {
      struct {
        key_codes k;                                         ///< codes of a tile's first keys
        staged_tile<code_type, staged_channels, columns> v;  ///< codes of half its values, by channels and slots
        union {
          /// What is there until scores are made.
          struct {
            key_codes k;                                        ///< codes of its other keys
            float biases[has_bias ? rows * (columns + 1) : 1];  ///< what is added to scores
          } of_scores;
          staged_tile<operand_type, width, columns> values[parts];  ///< widened, by channels and tokens
        };
      } codes;
      float totals[rows * (Channels + 1)];  ///< sums, rows one number further apart than long
    };
    typename terms_type::scratch_type terms;  ///< terms of the keys
    finished_row finished[rows];              ///< what results of each row are made with

    /// Codes of the first or the other keys.
    TESSERA_FN key_codes& keys_of(int half) { return half == 0 ? codes.k : codes.of_scores.k; }

    /// The sum of a channel.
    TESSERA_FN float& total(int row, int channel) { return totals[row * (Channels + 1) + channel]; }
  };

  using task_type = detail::quantized_task<Method, T, code_type>;  ///< what other programs are given, too
  using task_type::shape, task_type::queries, task_type::keys, task_type::values, task_type::writer,
      task_type::partials;
  attention_block_list list;  ///< tiles of keys that are seen; null: all
  Bias bias;                  ///< added to scores, natural

  /// How many blocks of 64 queries a head has.
  TESSERA_FN constexpr std::int64_t query_blocks() const { return coordinates::count(shape); }
  TESSERA_FN constexpr std::int64_t groups() const {
    return shape.batch * shape.query_heads * query_blocks() * partials.splits();
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    using row_words = words<G>;
    using copies = copies_in_flight<G>;
    auto const at = this->template place_of<coordinates>(which / partials.splits());
    row_states<G> state;
    begin_rows(group, at, state);
    typename row_words::totals_type totals;
    each_total(totals, [&](auto& total, int) { row_words::results::clear(group, total); });
    begin_queries(group, at, scratch);
    cursor next(at, list, partials.splits(), which % partials.splits());
    key_sources const from = sources_of(at);
    typename terms_type::template next<G> terms;
    begin_keys(group, from, next, terms, scratch);
    while (next.exists()) {
      std::int64_t const now = next.key();
      typename row_words::weights::sum_tile scores[halves];
      group.sync();  // all lanes have multiplied the values before
      terms_type::put(group, terms, scratch.terms);
      put_biases(group, at, now, scratch);
      begin_half_of_keys(group, from, now, 1, scratch);
      copies::commit();
      begin_values(group, from, now, 0, scratch);
      copies::template await<2>();
      group.sync();  // queries and the first keys are there
      make_scores(group, state, 0, scratch, scores[0]);
      next.move_on(at, list);
      copies::template await<1>();
      group.sync();  // the other keys are there, and all lanes have read the first
      begin_keys(group, from, next, terms, scratch);
      put_other_biases(group, at, now + columns, scratch);
      make_scores(group, state, 1, scratch, scores[1]);
      make_weights(group, at, now, state, scratch, scores);
      typename row_words::operands_type operands[halves];
      each_constant<halves>([&](auto half) { operands[half.value].make(group, scores[half.value]); });
      scale_totals(group, state, totals);
      each_constant<halves * value_tiles>([&, this](auto step) {
        copies::template await<step.value == 0 ? 1 : 0>();  // all but those of the next keys
        this->template add_values<step.value>(group, from, now, operands[step.value / value_tiles], scratch,
                                              totals.of_channels[step.value % value_tiles]);
      });
    }
    copies::template await<0>();  // queries that had no keys
    finish_rows(group, at, which % partials.splits(), state, totals, scratch);
  }

 private:
  /// Calls function(sums, first channel) for all sums of results.
  template <class Totals, class Function>
  TESSERA_FN static void each_total(Totals& totals, Function const& function) {
    each_constant<value_tiles>([&](auto tile) {
      each_constant<parts>([&](auto part) {
        function(totals.of_channels[tile.value][part.value], (tile.value * parts + part.value) * width);
      });
    });
  }
  /// Where a group is in the keys of its split.
  using cursor = detail::key_cursor<tile_keys, tile_keys>;

  /// Whether one thread may multiply codes of values as they are staged.
  template <class G>
  static constexpr bool multiplies_value_codes =
      detail::one_thread_plays<G>() && std::is_same_v<code_type, float8_e4m3>;

  /// The products of a group.
  template <class G>
  struct words {
    static constexpr int step = 32 / static_cast<int>(sizeof(operand_type));
    using products = row_tile<score_code, tessera::shape<rows, columns, 32>, G>;     ///< queries by keys
    using weights = row_tile<operand_type, tessera::shape<rows, columns, step>, G>;  ///< scores, then weights
    using results = row_tile<operand_type, tessera::shape<rows, width, step>, G>;    ///< weights by values
    /// Weights, as they are multiplied.
    using operands_type = std::conditional_t<multiplies_value_codes<G>, detail::weights_in_memory<weights, results>,
                                             operands_of_sums<weights, results>>;
    static_assert(RowTile<products> && RowTile<weights> && RowTile<results>);
    /// The sums of results, in the order in which channels of values are staged.
    struct totals_type {
      typename results::sum_tile of_channels[value_tiles][parts];  ///< by the channels that are staged at a time
    };
  };
  /// The softmax of a group's rows.
  template <class G>
  using softmax_of = detail::score_weights<softmax_type, weights, typename words<G>::weights>;
  /// What is known of the rows of a group.
  template <class G>
  struct row_states : softmax_of<G>::rows {
    typename softmax_of<G>::template each<float> query_scale;  ///< the scale of the row's query
  };

  template <Group G>
  TESSERA_FN void begin_rows(G const& group, coordinates const& at, row_states<G>& state) const {
    softmax_of<G>::begin(group, state);
    words<G>::products::each_row(
        group,
        [&](int row, float& scale) {
          std::int64_t const query = at.first_query + row;
          scale = query < shape.queries ? queries.scales(at.sequence, at.head, Method::query_groups::group_of(query))
                                        : 0.0F;
        },
        state.query_scale);
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
            terms_type::has_corrections ? queries.corrections[at.sequence][at.head][at.first_query / block_mean::tokens]
                                        : array_view<float>{}};
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
  /// Starts to load codes of the first keys of the next tile, and reads its keys' terms, if there is one. They are a
  /// batch of copies in any case.
  template <Group G>
  TESSERA_FN void begin_keys(G const& group, key_sources const& from, cursor const& next,
                             typename terms_type::template next<G>& terms, scratch_type& scratch) const {
    if (next.exists()) {
      begin_half_of_keys(group, from, next.key(), 0, scratch);
      terms_type::read(group, from.scales, from.corrections, next.key(), terms);
    }
    copies_in_flight<G>::commit();
  }
  /// Starts to load codes of half the keys of the tile that begins at `first`.
  template <Group G>
  TESSERA_FN void begin_half_of_keys(G const& group, key_sources const& from, std::int64_t first, int half,
                                     scratch_type& scratch) const {
    for (int part = 0; part < score_parts && has_score_part(part); ++part) {
      from.keys.begin_load(group, scratch.keys_of(half)[part], first + half * columns, std::int64_t{part} * depth);
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
          scratch.codes.of_scores.biases[row * (columns + 1) + i % columns] =
              key >= seen.first && key < seen.end ? bias(at.sequence, at.head, at.first_query + row, key) * log2_e
                                                  : 0.0F;
        }
      }
    }
  }
  /// The same for the other keys of a tile, when all lanes have read what is there.
  template <Group G>
  TESSERA_FN void put_other_biases(G const& group, coordinates const& at, std::int64_t first,
                                   scratch_type& scratch) const {
    if constexpr (has_bias) {
      put_biases(group, at, first, scratch);
      group.sync();
    }
  }
  /// Starts to load the codes of half a tile of values that are needed in a step: the channels that are staged at a
  /// time, of the first and then of the other keys.
  template <Group G>
  TESSERA_FN void begin_values(G const& group, key_sources const& from, std::int64_t first, int step,
                               scratch_type& scratch) const {
    dense<code_type> const codes{from.values[first / tile_keys]};
    codes.begin_load(group, scratch.codes.v, step % value_tiles * staged_channels, step / value_tiles * columns);
    copies_in_flight<G>::commit();
  }

  /// Multiplies queries by half a tile's keys, and makes scores of the sums.
  template <Group G>
  TESSERA_FN void make_scores(G const& group, row_states<G>& state, int half, scratch_type& scratch,
                              typename words<G>::weights::sum_tile& scores) const {
    using product = typename words<G>::products;
    typename product::sum_tile sums;
    product::clear(group, sums);
    each_constant<score_parts>([&, this](auto part) {
      if (has_score_part(part.value)) {
        multiply_staged<product>(group, scratch.q[part.value], scratch.keys_of(half)[part.value], sums);
      }
    });
    if constexpr (!keeps_scaled) {
      product::template map_sums<typename words<G>::weights>(
          group, sums, scores, [](int, int, score_sum sum) { return static_cast<float>(sum); });
    } else {
      product::template map_sums<typename words<G>::weights>(
          group, sums, scores,
          [&](int row, int column, score_sum sum, float query_scale) {
            int const key = half * columns + column;
            float score = static_cast<float>(sum) * (query_scale * scratch.terms.scale_of(key));
            if constexpr (terms_type::has_corrections) {
              score += scratch.terms.correction[key];
            }
            if constexpr (has_bias) {
              score += scratch.codes.of_scores.biases[row * (columns + 1) + column];
            }
            return score;
          },
          state.query_scale);
    }
  }

  /// Turns a tile's scores into the numbers that weights' codes stand for.
  template <Group G>
  TESSERA_FN void make_weights(G const& group, coordinates const& at, std::int64_t first, row_states<G>& state,
                               scratch_type const& scratch,
                               typename words<G>::weights::sum_tile (&scores)[halves]) const {
    if (!at.all_see(first, first + tile_keys)) {
      each_constant<halves>(
          [&](auto half) { softmax_of<G>::hide(group, at, first + half.value * columns, scores[half.value]); });
    }
    if constexpr (keeps_scaled) {
      softmax_of<G>::make(group, detail::no_score_scales{}, first < tile_keys, state, scores);
    } else {
      detail::score_scales<decltype(state.query_scale), typename terms_type::scratch_type> const scales{
          state.query_scale, scratch.terms};
      softmax_of<G>::make(group, scales, first < tile_keys, state, scores);
    }
  }

  /// Multiplies the sums of earlier tiles by the factors of their rows.
  template <Group G>
  TESSERA_FN void scale_totals(G const& group, row_states<G>& state, typename words<G>::totals_type& totals) const {
    each_total(totals, [&](auto& sums, int) {
      words<G>::results::each_with_row(
          group, sums, [](int, int, float& total, float factor) { total *= factor; }, state.factor);
    });
  }

  /// Adds the values of a step by their weights, once the lane's copies of their codes have come. Starts to load those
  /// of the next step.
  template <int Step, Group G>
  TESSERA_FN void add_values(G const& group, key_sources const& from, std::int64_t first,
                             typename words<G>::operands_type const& operands, scratch_type& scratch,
                             typename words<G>::results::sum_tile (&totals)[parts]) const {
    group.sync();  // all lanes' copies have come, and all have read what is where widened values go
    if constexpr (multiplies_value_codes<G>) {
      if (operands.add_values(scratch.codes.v, parts_in<Step>(), totals)) {
        begin_next_values<Step>(group, from, first, scratch);
        return;
      }
    }
    code_widening<code_type, G>::widen(group, scratch.codes.v, scratch.codes.values);
    group.sync();  // all lanes have widened them
    begin_next_values<Step>(group, from, first, scratch);
    multiply_sums_transposed(group, detail::operands_in(operands), scratch.codes.values, parts_in<Step>(), totals);
  }
  /// How many parts of values there are in a step, or more than `parts`.
  template <int Step>
  TESSERA_FN int parts_in() const {
    constexpr int first_channel = Step % value_tiles * staged_channels;
    return static_cast<int>(divide_up(shape.channels_of_values() - first_channel, std::int64_t{width}));
  }
  /// Starts to load the values of the step after this one, if there is one.
  template <int Step, Group G>
  TESSERA_FN void begin_next_values(G const& group, key_sources const& from, std::int64_t first,
                                    scratch_type& scratch) const {
    if constexpr (Step + 1 < halves * value_tiles) {
      begin_values(group, from, first, Step + 1, scratch);
    }
  }

  /// Writes results and log-sum-exps, or the partial results of a split.
  template <Group G>
  TESSERA_FN void finish_rows(G const& group, coordinates const& at, std::int64_t split, row_states<G>& state,
                              typename words<G>::totals_type& totals, scratch_type& scratch) const {
    using product = typename words<G>::results;
    detail::split_writer<Method, T> const to{writer, partials, split, at.sequence, at.head};
    softmax_of<G>::merge(group, state);
    product::each_row_once(
        group,
        [&](int row, state_type const& softmax, float rounded) {
          scratch.finished[row] = to.finish(at.first_query + row, {softmax, rounded});
        },
        state.softmax, state.rounded);
    group.sync();  // all lanes have read what was there before
    each_total(totals, [&](auto& sums, int first_channel) {
      product::each(group, sums, [&](int row, int column, float total) {
        scratch.total(row, first_channel + column) = total * code_widening<code_type, G>::unit();
      });
    });
    group.sync();
    if constexpr (is_serial_group<G>) {
      for (int row = 0; row < rows; ++row) {
        to.write_row(at.first_query + row, Channels, scratch.finished[row], &scratch.total(row, 0));
      }
    } else {
      for (int lane : group) {
        for (int i = lane; i < rows * Channels; i += lanes) {
          int const row = i / Channels;
          to.write(at.first_query + row, i % Channels, scratch.finished[row], scratch.total(row, i % Channels));
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
