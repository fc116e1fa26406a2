// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attend_chunks` and `merge_chunks`: attention of a step over the ring, the exact and the selected chunks, in splits
/// of the tokens (splits) that are merged by their log-sum-exps.
///
/// program/offloaded_cache/detail/attended_token.hpp says which tokens a split has.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/offloaded_cache/detail/attended_token.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/row_parts.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// Attention over one split. A group for each split of each key head of each step.
template <class T, class E>
struct attend_chunks {
  using value_type = T;
  static constexpr int lanes = 128;
  static_assert(lanes == attended_tokens, "tessera: a lane has a token of a split");

  struct scratch_type {
    float queries[most_group * most_channels];    ///< queries of the group's heads, scaled, in base 2
    float weights[most_group * attended_tokens];  ///< weights of the split's tokens for each head
    T const* values[attended_tokens];             ///< the value of each token, or null
  };

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  float scale;               ///< the factor of scores
  std::int64_t first_split;  ///< the first split of the launch
  std::int64_t splits;       ///< splits of a head in the launch

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * splits * extents.key_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    constexpr float log2_e = 1.4426950408889634F;
    std::int64_t const head = which % extents.key_heads;
    std::int64_t const split = first_split + which / extents.key_heads % splits;
    std::int64_t const at = which / extents.key_heads / splits;
    std::int64_t const sequence = step.sequence(extents, memory.sequences, at);
    if (sequence < 0) {
      return;
    }
    group.sync();  // all lanes have read the scratch
    for (int lane : group) {
      for (std::int64_t i = lane; i < extents.group() * extents.channels; i += lanes) {
        std::int64_t const query_head = head * extents.group() + i / extents.channels;
        scratch.queries[i] =
            scale * log2_e * static_cast<float>(load(step.queries(at, query_head, i % extents.channels)));
      }
    }
    group.sync();
    per_lane<T const*, G> keys;
    for (int lane : group) {
      attended_token<T> const token = attended_by(extents, memory, step, {at, sequence, head}, split, lane);
      keys[lane] = token.key;
      scratch.values[lane] = token.value;
    }
    for (std::int64_t i = 0; i < extents.group(); ++i) {
      weigh(group, at, head, split, i, keys, scratch);
    }
    group.sync();
    for (std::int64_t i = 0; i < extents.group(); ++i) {
      add_values(group, at, head, split, i, scratch);
    }
  }

 private:
  template <Group G>
  TESSERA_FN void weigh(G const& group, std::int64_t at, std::int64_t head, std::int64_t split, std::int64_t query,
                        per_lane<T const*, G> const& keys, scratch_type& scratch) const {
    online_softmax<float> const softmax;
    per_lane<float, G> score;
    for (int lane : group) {
      score[lane] = -infinity;
      if (keys[lane] != nullptr) {
        score[lane] = 0.0F;
        for (std::int64_t channel = 0; channel < extents.channels; ++channel) {
          score[lane] = multiply_add(scratch.queries[query * extents.channels + channel],
                                     static_cast<float>(load(keys[lane][channel])), score[lane]);
        }
      }
    }
    auto state = softmax.identity();
    softmax.turn(state, maximum(group, score));
    per_lane<float, G> weight;
    for (int lane : group) {
      weight[lane] = softmax.weight(state, score[lane]);
      scratch.weights[query * attended_tokens + lane] = weight[lane];
    }
    state.sum = sum(group, weight);
    for (int lane : group) {
      if (is_first(lane)) {
        step.states(split, at, head * extents.group() + query) = state;
      }
    }
  }

  /// Adds up weighted values in the order of tokens.
  template <Group G>
  TESSERA_FN void add_values(G const& group, std::int64_t at, std::int64_t head, std::int64_t split, std::int64_t query,
                             scratch_type const& scratch) const {
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < extents.channels; channel += lanes) {
        float total = 0.0F;
        for (std::int64_t token = 0; token < attended_tokens; ++token) {
          T const* const value = scratch.values[token];
          if (value != nullptr) {
            total = multiply_add(scratch.weights[query * attended_tokens + token],
                                 static_cast<float>(load(value[channel])), total);
          }
        }
        step.totals(split, at, head * extents.group() + query, channel) = total;
      }
    }
  }
};

/// Merges the splits of a query head, one after the other. A group for each query head of each step. Steps without a
/// sequence get zeros and minus infinity.
template <class T, class E, class Result>
struct merge_chunks {
  static constexpr int lanes = 64;
  struct scratch_type {};

  offload_extents extents;
  array_view<cached_sequence const> sequences;  ///< lengths of each sequence
  offload_step<T> step;
  view<Result, 3> results;     ///< steps x query heads x channels
  view<float, 2> log_sum_exp;  ///< steps x query heads: natural logarithms; or null

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * extents.query_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    using softmax_type = online_softmax<float>;
    using part_type = row_part<softmax_type::state_type, 1>;
    part_reducer<softmax_type, part_type> const reducer;
    std::int64_t const at = which / extents.query_heads;
    std::int64_t const head = which % extents.query_heads;
    bool const is_there = step.sequence(extents, sequences, at) >= 0;
    std::int64_t const splits = is_there ? resident_splits(extents) + selected_splits(extents) : 0;
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < extents.channels; channel += lanes) {
        part_type all = reducer.identity();
        for (std::int64_t split = 0; split < splits; ++split) {
          reducer.merge(all, {step.states(split, at, head), {step.totals(split, at, head, channel)}});
        }
        finished_row const row = is_there
                                     ? finish_attention_row<softmax_type>({all.state, all.state.sum}, -infinity, 0.0F)
                                     : no_attention_row();
        results(at, head, channel) = store<Result>(row.inverse == 0.0F ? 0.0F : all.values[0] * row.inverse);
        if (channel == 0 && log_sum_exp.data != nullptr) {
          log_sum_exp(at, head) = row.log_sum_exp;
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
