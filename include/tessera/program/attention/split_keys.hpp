// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The end of a row of attention: `finish_attention_row` makes results and log-sum-exps when all keys are done.
/// `merge_attention` merges rows whose keys were split among groups (split-KV, for few queries).
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/row_parts.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// What is known of a row of scores after some of its keys: a part that part_reducer merges (reduce/row_parts.hpp).
template <class State>
struct attention_row {
  static constexpr int count = 1;  ///< weighted sums besides the state's own sum of weights

  State state;    ///< the softmax's state
  float rounded;  ///< the sum of the weights' codes

  /// The sum of the weights' codes.
  TESSERA_FN constexpr float& value(int) { return rounded; }
  /// The sum of the weights' codes.
  TESSERA_FN constexpr float const& value(int) const { return rounded; }

  /// The row before its first key.
  template <class Softmax>
  [[nodiscard]] TESSERA_FN static constexpr attention_row nothing(Softmax const& softmax) {
    return {softmax.identity(), 0.0F};
  }
};

constexpr int most_attention_splits = 64;  ///< the most splits that the keys of a row may have

/// The partial results of splits of the keys. Each is relative to its own reference.
template <class State>
struct attention_partials {
  view<float, 5> totals;               ///< sums of weighted values: splits x batch x query heads x queries x channels
  view<attention_row<State>, 4> rows;  ///< splits x batch x query heads x queries

  /// The number of splits; 1 without memory for more.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t splits() const { return rows.data == nullptr ? 1 : rows.extent(0); }
};

/// What the results of a row are made with.
struct finished_row {
  float inverse;      ///< what totals are multiplied by; 0 for a row without keys
  float share;        ///< the part of the row's weight that values have: less than 1 with a sink
  float log_sum_exp;  ///< natural, with the mean key's score
};

/// The scale and the mean of a channel of values.
struct value_terms {
  float scale;  ///< what codes are multiplied by
  float mean;   ///< the mean that was subtracted from all values
};

/// Finishes a row. `sink`: the sink's score; minus infinity for none. `mean_score`: the score of the mean key, which
/// all scores lack.
template <class Softmax>
TESSERA_FN finished_row finish_attention_row(attention_row<typename Softmax::state_type> row, float sink,
                                             float mean_score) {
  constexpr float log2_e = 1.4426950408889634F;
  Softmax const softmax;
  bool const is_empty = row.state.sum == 0.0F;
  float const shift = is_empty ? 0.0F : mean_score;
  float share = 1.0F;
  if (sink != -infinity) {
    auto all = row.state;
    softmax.push(all, (sink - shift) * log2_e);
    share = row.state.sum * softmax.merge_factors(row.state, all).of_first / all.sum;
    row.state = all;
  }
  float const poison = is_nan(row.state.sum) ? row.state.sum : 1.0F;  // codes of integers have no NaN
  return {is_empty ? 0.0F : poison * share / row.rounded, share, softmax.value(row.state) + shift};
}

/// The finished row of a query beyond the length of its sequence: results of zeros, a log-sum-exp of minus infinity.
TESSERA_FN constexpr finished_row no_attention_row() {
  return {0.0F, 1.0F, -infinity};
}

/// The method of attention of a few queries over keys that are not quantized by a Method, or lie in pages of a cache:
/// all that attention_writer and merge_attention ask of one.
struct decode_method {
  using softmax = online_softmax<float>;
};

/// Writes results and log-sum-exps: the last step of attention_tiles and merge_attention.
template <class Method, class T>
struct attention_writer {
  using softmax_type = typename Method::softmax;
  using row_type = attention_row<typename softmax_type::state_type>;

  attention_shape shape;
  view<float const, 3> mean_scores;   ///< quantized_queries::mean_scores, or null
  view<float const, 3> value_scales;  ///< batch x key heads x channels; null: all 1
  view<float const, 3> value_mean;    ///< batch x key heads x channels; or null
  sequence_lengths query_lengths;
  array_view<float const> sinks;  ///< a score for each query head, or null
  sequence_starts starts;         ///< where queries of sequences begin
  head_view<T> out;               ///< results
  view<float, 3> log_sum_exp;     ///< batch x query heads x queries, or null

  /// Finishes a row, with its sink and its mean key's score.
  TESSERA_FN finished_row finish(std::int64_t sequence, std::int64_t head, std::int64_t query,
                                 row_type const& row) const {
    if (query >= length_of(query_lengths, sequence, shape.queries)) {
      return no_attention_row();
    }
    float const mean_score = mean_scores.data != nullptr ? mean_scores(sequence, head, query) : 0.0F;
    return finish_attention_row<softmax_type>(row, sinks.data != nullptr ? sinks[head] : -infinity, mean_score);
  }
  /// Writes a row's log-sum-exp, if it is wanted.
  TESSERA_FN void write_log_sum_exp(std::int64_t sequence, std::int64_t head, std::int64_t query,
                                    finished_row const& row) const {
    std::int64_t const at = row_of(sequence, query);
    if (log_sum_exp.data != nullptr && at >= 0) {
      log_sum_exp(sequence, head, at) = row.log_sum_exp;
    }
  }
  /// The scale and the mean of a channel of values, for a query head.
  TESSERA_FN value_terms terms_of(std::int64_t sequence, std::int64_t head, std::int64_t channel) const {
    auto const group = static_cast<std::uint32_t>(shape.query_heads) / static_cast<std::uint32_t>(shape.key_heads);
    std::int64_t const key_head = static_cast<std::uint32_t>(head) / group;
    return {value_scales.data != nullptr ? value_scales(sequence, key_head, channel) : 1.0F,
            value_mean.data != nullptr ? value_mean(sequence, key_head, channel) : 0.0F};
  }
  /// Writes one channel of a row. `inverse` and `share` are those of finished_row.
  TESSERA_FN void write(std::int64_t sequence, std::int64_t head, std::int64_t query, std::int64_t channel,
                        float inverse, float share, float total) const {
    write(sequence, head, query, channel, {inverse, share, 0.0F}, terms_of(sequence, head, channel), total);
  }
  /// Writes one channel of a row whose terms_of() are known.
  TESSERA_FN void write(std::int64_t sequence, std::int64_t head, std::int64_t query, std::int64_t channel,
                        finished_row const& row, value_terms const& terms, float total) const {
    std::int64_t const at = row_of(sequence, query);
    if (at >= 0) {
      out(sequence, head, at, channel) = store<T>(result_of(row, terms, total));
    }
  }
  /// Writes the first `channels` channels of a row, whose sums lie one behind the other.
  TESSERA_FN void write_row(std::int64_t sequence, std::int64_t head, std::int64_t query, finished_row const& row,
                            float const* totals, std::int64_t channels) const {
    std::int64_t const at = row_of(sequence, query);
    if (at < 0) {
      return;
    }
    std::int64_t const key_head = head / (shape.query_heads / shape.key_heads);
    bool const has_scales = value_scales.data != nullptr;
    bool const has_mean = value_mean.data != nullptr;
    view<float const, 1> const scales = has_scales ? value_scales[sequence][key_head] : view<float const, 1>{};
    view<float const, 1> const mean = has_mean ? value_mean[sequence][key_head] : view<float const, 1>{};
    view<T, 1> const to = out[sequence][head][at];
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      value_terms const terms{has_scales ? scales(channel) : 1.0F, has_mean ? mean(channel) : 0.0F};
      to(channel) = store<T>(result_of(row, terms, totals[channel]));
    }
  }
  /// Where the results of a row lie; -1: nowhere, for behind a sequence that is not padded the next one begins.
  TESSERA_FN std::int64_t row_of(std::int64_t sequence, std::int64_t query) const {
    bool const is_beyond = starts.first.data != nullptr && query >= length_of(query_lengths, sequence, shape.queries);
    return is_beyond ? -1 : starts.row_of(sequence, query);
  }

 private:
  TESSERA_FN static float result_of(finished_row const& row, value_terms const& terms, float total) {
    return row.inverse != 0.0F ? total * row.inverse * terms.scale + row.share * terms.mean : 0.0F;
  }
};

/// Merges the splits of rows, relative to the largest of their references: four quarters of them at the same time, each
/// in order, then the quarters in order. A group takes a row.
template <class Method, class T>
struct merge_attention {
  using softmax_type = typename Method::softmax;
  using state_type = typename softmax_type::state_type;
  using row_type = attention_row<state_type>;
  using reducer_type = part_reducer<softmax_type, row_type>;  ///< merges splits
  static constexpr int parts = 4;                             ///< parts of the splits, which are added at the same time
  static constexpr int part_lanes = 128;                      ///< lanes that add a part
  static constexpr int lanes = parts * part_lanes;
  static constexpr int most_channels = 256;
  static constexpr int at_a_time = 8;  ///< splits that are loaded before the first is added

  struct scratch_type {
    row_type rows[most_attention_splits];  ///< the row's states, one for each split
    float factors[most_attention_splits];  ///< what each split is multiplied by
    row_type part_rows[parts];             ///< the sum of each part
    float totals[parts * most_channels];   ///< sums of weighted values of each part, by channels
  };

  attention_partials<state_type> partials;  ///< the splits
  attention_writer<Method, T> results;

  TESSERA_FN constexpr std::int64_t groups() const {
    return results.shape.batch * results.shape.query_heads * results.shape.queries;
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    coordinates const at{which / results.shape.queries / results.shape.query_heads,
                         which / results.shape.queries % results.shape.query_heads, which % results.shape.queries};
    if constexpr (is_serial_group<G>) {
      merge_row(at, scratch);
    } else {
      merge_by_lanes(group, at, scratch);
    }
  }

 private:
  struct coordinates {
    std::int64_t sequence;
    std::int64_t head;
    std::int64_t query;
  };

  /// Merges a row by all lanes, which take channels.
  template <Group G>
  TESSERA_FN void merge_by_lanes(G const& group, coordinates const& at, scratch_type& scratch) const {
    auto const splits = static_cast<int>(partials.splits());
    for (int lane : group) {
      if (lane < splits) {
        scratch.rows[lane] = partials.rows(lane, at.sequence, at.head, at.query);
      }
    }
    group.sync();
    for (int lane : group) {
      if (lane < splits) {
        scratch.factors[lane] = reducer_type{}.factor(scratch.rows[lane], nothing_of(scratch));
      }
    }
    group.sync();
    for (int lane : group) {
      add_splits(scratch, at, lane / part_lanes, lane % part_lanes);
    }
    group.sync();
    finished_row row{};
    bool is_finished = false;  // by a lane before, where one thread plays all
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < results.shape.channels_of_values(); channel += lanes) {
        row = is_finished ? row : finish(at, scratch);
        is_finished = true;
        write(at, channel, row, scratch);
      }
    }
  }
  /// Merges a row by one thread, a split after the other, with all channels.
  TESSERA_FN void merge_row(coordinates const& at, scratch_type& scratch) const {
    auto const splits = static_cast<int>(partials.splits());
    std::int64_t const channels = results.shape.channels_of_values();
    for (int split = 0; split < splits; ++split) {
      scratch.rows[split] = partials.rows(split, at.sequence, at.head, at.query);
    }
    row_type const nothing = nothing_of(scratch);
    for (int split = 0; split < splits; ++split) {
      scratch.factors[split] = reducer_type{}.factor(scratch.rows[split], nothing);
    }
    float totals[most_channels] = {};
    for (int part = 0; part < parts; ++part) {
      float* const of_part = scratch.totals + part * most_channels;
      add_splits_of_row(scratch, at, part, of_part);
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        totals[channel] += of_part[channel];
      }
    }
    finished_row const row = finish(at, scratch);
    results.write_row(at.sequence, at.head, at.query, row, totals, channels);
    results.write_log_sum_exp(at.sequence, at.head, at.query, row);
  }
  /// Adds up a part of a row's splits.
  TESSERA_FN void add_splits_of_row(scratch_type& scratch, coordinates const& at, int part, float* totals) const {
    std::int64_t const channels = results.shape.channels_of_values();
    split_range const range = range_of(part);
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      totals[channel] = 0.0F;
    }
    for (int split = range.begin; split < range.end; ++split) {
      add_scaled(partials.totals[split][at.sequence][at.head][at.query], channels, scratch.factors[split], totals);
    }
    scratch.part_rows[part] = row_of(scratch, range);
  }

  /// Adds a split's sums of a row.
  TESSERA_FN static void add_scaled(view<float, 1> const& from, std::int64_t channels, float factor, float* totals) {
    if (from.strides[0] == 1) {  // a loop that compilers make vectors of
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        totals[channel] += from.data[channel] * factor;
      }
    } else {
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        totals[channel] += from(channel) * factor;
      }
    }
  }

  /// A row without keys, relative to the largest reference of the splits.
  TESSERA_FN row_type nothing_of(scratch_type const& scratch) const {
    return begin_parts(reducer_type{}, static_cast<int>(partials.splits()), [&](int i) { return scratch.rows[i]; });
  }

  /// The splits from `begin` to `end` - 1.
  struct split_range {
    int begin;  ///< the first split
    int end;    ///< one past the last split
  };
  /// The splits of a part.
  TESSERA_FN split_range range_of(int part) const {
    auto const splits = static_cast<int>(partials.splits());
    int const each = divide_up(splits, parts);
    int const begin = min(part * each, splits);
    return {begin, min(begin + each, splits)};
  }
  /// The state of the row's keys in some splits.
  TESSERA_FN row_type row_of(scratch_type const& scratch, split_range range) const {
    row_type sum = nothing_of(scratch);
    for (int split = range.begin; split < range.end; ++split) {
      reducer_type{}.add(sum, scratch.rows[split], scratch.factors[split]);
    }
    return sum;
  }

  TESSERA_FN void add_splits(scratch_type& scratch, coordinates const& at, int part, int lane) const {
    auto const [begin, end] = range_of(part);
    for (int channel = lane; channel < static_cast<int>(results.shape.channels_of_values()); channel += part_lanes) {
      float total = 0.0F;
      for (int split = begin; split < end; split += at_a_time) {
        add_some(scratch, total, at, channel, split, end);
      }
      scratch.totals[part * most_channels + channel] = total;
    }
    if (lane == 0) {
      scratch.part_rows[part] = row_of(scratch, {begin, end});
    }
  }

  TESSERA_FN void add_some(scratch_type const& scratch, float& total, coordinates const& at, int channel, int first,
                           int end) const {
    float totals[at_a_time];
    for (int i = 0; i < at_a_time; ++i) {
      totals[i] = partials.totals(min(first + i, end - 1), at.sequence, at.head, at.query, channel);
    }
    for (int i = 0; i < at_a_time; ++i) {
      if (first + i < end) {
        total += totals[i] * scratch.factors[first + i];
      }
    }
  }

  /// The finished row, of all parts.
  TESSERA_FN finished_row finish(coordinates const& at, scratch_type const& scratch) const {
    row_type whole = scratch.part_rows[0];
    for (int part = 1; part < parts; ++part) {
      reducer_type{}.add(whole, scratch.part_rows[part], 1.0F);
    }
    return results.finish(at.sequence, at.head, at.query, whole);
  }
  TESSERA_FN void write(coordinates const& at, std::int64_t channel, finished_row const& row,
                        scratch_type const& scratch) const {
    float total = 0.0F;
    for (int part = 0; part < parts; ++part) {
      total += scratch.totals[part * most_channels + channel];
    }
    results.write(at.sequence, at.head, at.query, channel, row.inverse, row.share, total);
    if (channel == 0) {
      results.write_log_sum_exp(at.sequence, at.head, at.query, row);
    }
  }
};

}  // namespace v0
}  // namespace tessera
