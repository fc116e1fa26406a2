// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `merge_rows`: merges rows whose keys were split among groups, as merge_attention does (program/attention/
/// split_keys.hpp), for many rows of few splits: a warp takes a row, and merges its splits by merge_parts.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/row_parts.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// T: the type of results, of up to 256 channels.
template <class Method, class T>
struct merge_rows {
  using softmax_type = typename Method::softmax;
  using state_type = typename softmax_type::state_type;
  using row_type = attention_row<state_type>;
  using reducer_type = part_reducer<softmax_type, row_type>;
  static constexpr int lanes = 32;
  static constexpr int most_channels = 256;
  struct scratch_type {};

  attention_partials<state_type> partials;  ///< the splits
  attention_writer<Method, T> results;

  TESSERA_FN constexpr std::int64_t groups() const {
    return results.shape.batch * results.shape.query_heads * results.shape.queries;
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const query = which % results.shape.queries;
    std::int64_t const head = which / results.shape.queries % results.shape.query_heads;
    std::int64_t const sequence = which / results.shape.queries / results.shape.query_heads;
    auto const splits = static_cast<int>(partials.splits());
    for (int lane : group) {
      merge(lane, splits, sequence, head, query);
    }
  }

 private:
  /// Merges a lane's channels of a row, each 32 from the one before.
  TESSERA_FN void merge(int lane, int splits, std::int64_t sequence, std::int64_t head, std::int64_t query) const {
    constexpr int most = most_channels / lanes;
    auto const channels = static_cast<int>(results.shape.channels);
    float totals[most] = {};
    row_type const whole = merge_parts(
        reducer_type{}, splits,
        [&, this](int split) -> row_type const& { return partials.rows(split, sequence, head, query); },
        [&, this](int split, float factor) {
          float const* const of_split = &partials.totals(split, sequence, head, query, 0);
          for (int i = 0; i < most; ++i) {
            int const channel = lane + i * lanes;
            totals[i] += channel < channels ? of_split[channel] * factor : 0.0F;
          }
        });
    finished_row const finished = results.finish(sequence, head, query, whole);
    for (int i = 0; i < most; ++i) {
      int const channel = lane + i * lanes;
      if (channel < channels) {
        results.write(sequence, head, query, channel, finished.inverse, finished.share, totals[i]);
      }
    }
    if (lane == 0) {
      results.write_log_sum_exp(sequence, head, query, finished);
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
