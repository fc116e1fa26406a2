// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `split_writer`: writes what a group of attention has of its rows: results and log-sum-exps, or, where the keys are
/// split, partial results that merge_attention merges (program/attention/split_keys.hpp).
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/attention/split_keys.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Method: an attention_method. T: the type of results. Rows of queries and channels that do not exist are not written.
template <class Method, class T>
struct split_writer {
  using state_type = typename Method::softmax::state_type;

  attention_writer<Method, T> const& results;
  attention_partials<state_type> const& partials;  ///< null: the keys are not split
  std::int64_t split;                              ///< the number of the split
  std::int64_t sequence;
  std::int64_t head;

  /// Writes a row's log-sum-exp, or its part of a split, and gives what results are made with.
  TESSERA_FN finished_row finish(std::int64_t query, attention_row<state_type> const& row) const {
    if (query >= results.shape.queries) {
      return no_attention_row();
    }
    if (partials.rows.data != nullptr) {
      partials.rows(split, sequence, head, query) = row;
      return no_attention_row();
    }
    finished_row const finished = results.finish(sequence, head, query, row);
    results.write_log_sum_exp(sequence, head, query, finished);
    return finished;
  }
  /// Writes a channel of a row: its weighted values' sum, or the result that finish() gives what it is made with.
  TESSERA_FN void write(std::int64_t query, std::int64_t channel, finished_row const& row, float total) const {
    if (query >= results.shape.queries || channel >= results.shape.channels_of_values()) {
      return;
    }
    if (partials.rows.data != nullptr) {
      partials.totals(split, sequence, head, query, channel) = total;
    } else {
      results.write(sequence, head, query, channel, row.inverse, row.share, total);
    }
  }
  /// Writes the first `channels` channels of a row, of those that exist, whose sums lie one behind the other.
  TESSERA_FN void write_row(std::int64_t query, std::int64_t channels, finished_row const& row,
                            float const* totals) const {
    std::int64_t const count = min(channels, results.shape.channels_of_values());
    if (query >= results.shape.queries) {
      return;
    }
    if (partials.rows.data != nullptr) {
      view<float, 1> const to = partials.totals[split][sequence][head][query];
      for (std::int64_t channel = 0; channel < count; ++channel) {
        to(channel) = totals[channel];
      }
    } else {
      results.write_row(sequence, head, query, row, totals, count);
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
