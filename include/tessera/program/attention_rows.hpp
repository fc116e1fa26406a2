// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What becomes of a row of attention when its keys are done: `finish_attention_row`; and `merge_attention`, which puts
/// together rows whose keys were shared among groups (split-KV, for queries that are few).
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/attention_operands.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// What is known of a row's keys so far.
template <class State>
struct attention_row {
  State state;
  float rounded;  ///< the sum of the weights' codes
};

/// Shares of rows: their values are added up relative to their own references.
template <class State>
struct attention_partials {
  view<float, 5> totals;               ///< shares x batch x query heads x queries x channels
  view<attention_row<State>, 4> rows;  ///< shares x batch x query heads x queries

  [[nodiscard]] TESSERA_FN constexpr std::int64_t shares() const { return rows.data == nullptr ? 1 : rows.extent(0); }
};

/// What results are made with.
struct finished_row {
  float inverse;  ///< what totals are multiplied by; 0 for a row without keys
  float share;    ///< of values in the row's weights: less than 1 with a sink
  float log_sum_exp;
};

/// `sink`: minus infinity for none. `mean_score`: of the mean key, by which scores are less than they should be.
template <class Softmax>
TESSERA_FN finished_row finish_attention_row(attention_row<typename Softmax::state_type> row, float sink,
                                             float mean_score) {
  constexpr float log2_e = 1.4426950408889634F;
  const Softmax softmax;
  const bool is_empty = row.state.sum == 0.0F;
  const float shift = is_empty ? 0.0F : mean_score;
  float share = 1.0F;
  if (sink != -infinity) {
    auto all = row.state;
    softmax.push(all, (sink - shift) * log2_e);
    share = row.state.sum * softmax.merge_factors(row.state, all).of_first / all.sum;
    row.state = all;
  }
  const float poison = is_nan(row.state.sum) ? row.state.sum : 1.0F;  // codes of integers have no NaN
  return {is_empty ? 0.0F : poison * share / row.rounded, share, softmax.value(row.state) + shift};
}

/// Rows beyond the length of their sequence: zeros and minus infinity.
TESSERA_FN constexpr finished_row no_attention_row() {
  return {0.0F, 1.0F, -infinity};
}

/// Codes to results: the last step of attention_tiles and merge_attention.
template <class Method, class T>
struct attention_writer {
  using softmax_type = typename Method::softmax;
  using row_type = attention_row<typename softmax_type::state_type>;

  attention_shape shape;
  view<float const, 3> mean_scores;   ///< of quantized_queries, or null
  view<float const, 3> value_scales;  ///< batch x key heads x channels; null: all 1
  view<float const, 3> value_mean;    ///< likewise, or null
  sequence_lengths query_lengths;
  array_view<float const> sinks;  ///< or null
  sequence_starts starts;         ///< of queries
  head_view<T> out;
  view<float, 3> log_sum_exp;  ///< or null

  TESSERA_FN finished_row finish(std::int64_t sequence, std::int64_t head, std::int64_t query,
                                 row_type const& row) const {
    if (query >= length_of(query_lengths, sequence, shape.queries)) {
      return no_attention_row();
    }
    const float mean_score = mean_scores.data != nullptr ? mean_scores(sequence, head, query) : 0.0F;
    return finish_attention_row<softmax_type>(row, sinks.data != nullptr ? sinks[head] : -infinity, mean_score);
  }
  TESSERA_FN void write_log_sum_exp(std::int64_t sequence, std::int64_t head, std::int64_t query,
                                    finished_row const& row) const {
    const std::int64_t at = place(sequence, query);
    if (log_sum_exp.data != nullptr && at >= 0) {
      log_sum_exp(sequence, head, at) = row.log_sum_exp;
    }
  }
  TESSERA_FN void write(std::int64_t sequence, std::int64_t head, std::int64_t query, std::int64_t channel,
                        float inverse, float share, float total) const {
    const std::int64_t at = place(sequence, query);
    if (at < 0) {
      return;
    }
    const std::int64_t key_head = head / (shape.query_heads / shape.key_heads);
    float result = 0.0F;
    if (inverse != 0.0F) {
      result = total * inverse;
      if (value_scales.data != nullptr) {
        result *= value_scales(sequence, key_head, channel);
      }
      if (value_mean.data != nullptr) {
        result += share * value_mean(sequence, key_head, channel);
      }
    }
    out(sequence, head, at, channel) = store<T>(result);
  }

 private:
  /// Of a row; -1 for nowhere: behind a sequence that is not padded the next one begins.
  TESSERA_FN std::int64_t place(std::int64_t sequence, std::int64_t query) const {
    const bool is_beyond = starts.first.data != nullptr && query >= length_of(query_lengths, sequence, shape.queries);
    return is_beyond ? -1 : starts.place(sequence, query);
  }
};

/// Adds the shares of rows: four quarters of them at the same time, each in order, then the quarters in order. A group
/// takes a row.
template <class Method, class T>
struct merge_attention {
  using softmax_type = typename Method::softmax;
  using state_type = typename softmax_type::state_type;
  using row_type = attention_row<state_type>;
  static constexpr int parts = 4;
  static constexpr int part_lanes = 128;
  static constexpr int lanes = parts * part_lanes;
  static constexpr int most_channels = 256;
  static constexpr int at_a_time = 8;  ///< shares that are asked for before the first is there

  struct scratch_type {
    row_type rows[parts];
    float totals[parts * most_channels];
  };

  attention_partials<state_type> partials;
  attention_writer<Method, T> results;

  TESSERA_FN constexpr std::int64_t groups() const {
    return results.shape.batch * results.shape.query_heads * results.shape.queries;
  }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    const place at{which / results.shape.queries / results.shape.query_heads,
                   which / results.shape.queries % results.shape.query_heads, which % results.shape.queries};
    const std::int64_t each = divide_up(partials.shares(), std::int64_t{parts});
    for (int lane : group) {
      const int part = lane / part_lanes;
      const std::int64_t end = min((part + 1) * each, partials.shares());
      for (std::int64_t channel = lane % part_lanes; channel < results.shape.channels; channel += part_lanes) {
        row_type row = nothing();
        float total = 0.0F;
        for (std::int64_t share = part * each; share < end; share += at_a_time) {
          add_shares(row, total, at, channel, share, end);
        }
        scratch.totals[part * most_channels + channel] = total;
        if (channel == 0) {
          scratch.rows[part] = row;
        }
      }
    }
    group.sync();
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < results.shape.channels; channel += lanes) {
        finish(at, channel, scratch);
      }
    }
  }

 private:
  struct place {
    std::int64_t sequence;
    std::int64_t head;
    std::int64_t query;
  };

  TESSERA_FN static row_type nothing() { return {softmax_type{}.identity(), 0.0F}; }

  TESSERA_FN void add_shares(row_type& row, float& total, place const& at, std::int64_t channel, std::int64_t first,
                             std::int64_t end) const {
    row_type rows[at_a_time];
    float totals[at_a_time];
    for (int i = 0; i < at_a_time; ++i) {
      const std::int64_t share = min(first + i, end - 1);
      rows[i] = partials.rows(share, at.sequence, at.head, at.query);
      totals[i] = partials.totals(share, at.sequence, at.head, at.query, channel);
    }
    for (int i = 0; i < at_a_time; ++i) {
      if (first + i < end) {
        add(row, total, rows[i], totals[i]);
      }
    }
  }

  TESSERA_FN void finish(place const& at, std::int64_t channel, scratch_type const& scratch) const {
    row_type whole = nothing();
    float total = 0.0F;
    for (int part = 0; part < parts; ++part) {
      add(whole, total, scratch.rows[part], scratch.totals[part * most_channels + channel]);
    }
    const finished_row row = results.finish(at.sequence, at.head, at.query, whole);
    results.write(at.sequence, at.head, at.query, channel, row.inverse, row.share, total);
    if (channel == 0) {
      results.write_log_sum_exp(at.sequence, at.head, at.query, row);
    }
  }

  TESSERA_FN static void add(row_type& whole, float& total, row_type const& part, float part_total) {
    const softmax_type softmax;
    const auto by = softmax.merge_factors(whole.state, part.state);
    total = total * by.of_first + part_total * by.of_second;
    whole.rounded = whole.rounded * by.of_first + part.rounded * by.of_second;
    softmax.merge(whole.state, part.state);
  }
};

}  // namespace v0
}  // namespace tessera
