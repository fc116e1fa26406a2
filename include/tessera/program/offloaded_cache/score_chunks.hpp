// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `score_chunks`: computes the scores of queries and the landmarks of archived chunks, and sums of their exponentials.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// Scores chunks. A group for each `scored_chunks` chunks of each key head of each step, as many as the longest
/// sequence has room for. Scores are natural, with the softmax's scale; exact chunks, which are not to be selected, get
/// minus infinity. Each lane adds up a sum, then the lanes' sums are added; select_chunks adds up those of blocks.
template <class T, ChunkSelector S>
struct score_chunks {
  using value_type = T;
  /// The selector whose landmarks are scored.
  using selector_type = S;
  /// What the cache keeps of chunks.
  using landmarks = chunk_landmarks<S>;
  using element_type = typename landmarks::element_type;
  static constexpr int lanes = 128;

  struct scratch_type {
    float queries[most_group * most_channels];  ///< queries of the group's heads
  };

  offload_extents extents;
  offloaded_memory<T, element_type> memory;
  offload_step<T> step;
  S selector;
  float scale;  ///< the factor of scores

  /// The groups that score the chunks of a head.
  TESSERA_FN constexpr std::int64_t blocks() const { return divide_up(extents.longest, scored_chunks); }
  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * blocks() * extents.key_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const head = which % extents.key_heads;
    std::int64_t const block = which / extents.key_heads % blocks();
    std::int64_t const at = which / extents.key_heads / blocks();
    std::int64_t const sequence = step.sequence(extents, memory.sequences, at);
    if (sequence < 0 || block * scored_chunks >= memory.sequences[sequence].chunks) {
      return;
    }
    group.sync();  // all lanes have read the scratch
    for (int lane : group) {
      for (std::int64_t i = lane; i < extents.group() * extents.channels; i += lanes) {
        std::int64_t const query_head = head * extents.group() + i / extents.channels;
        scratch.queries[i] = scale * static_cast<float>(load(step.queries(at, query_head, i % extents.channels)));
      }
    }
    group.sync();
    for (std::int64_t i = 0; i < extents.group(); ++i) {
      score_head(group, {sequence, head, block, i}, at, scratch);
    }
  }

 private:
  struct work_coordinate {
    std::int64_t sequence;
    std::int64_t head;
    std::int64_t block;
    std::int64_t query;  ///< number of the query in the group
  };
  struct query_row {
    float const* values;
    TESSERA_FN float operator()(std::int64_t channel) const { return values[channel]; }
  };
  struct add_sums {
    TESSERA_FN scaled_exponentials<float> operator()(scaled_exponentials<float> a,
                                                     scaled_exponentials<float> const& b) const {
      lse_reducer<float>{}.merge(a, b);
      return a;
    }
  };

  template <Group G>
  TESSERA_FN void score_head(G const& group, work_coordinate const& p, std::int64_t at,
                             scratch_type const& scratch) const {
    cached_sequence const known = memory.sequences[p.sequence];
    std::int64_t const end = min((p.block + 1) * scored_chunks, std::int64_t{known.chunks});
    query_row const query{scratch.queries + p.query * extents.channels};
    per_lane<scaled_exponentials<float>, G> own;
    for (int lane : group) {
      own[lane] = lse_reducer<float>{}.identity();
      for (std::int64_t chunk = p.block * scored_chunks + lane; chunk < end; chunk += lanes) {
        float const score = score_of(known, p, chunk, query);
        memory_score(known.first + chunk, p.head, p.query) = score;
        lse_reducer<float>{}.push(own[lane], score);
      }
    }
    auto const all = reduce(group, own, add_sums{});
    for (int lane : group) {
      if (is_first(lane)) {
        step.score_sums(at, p.block, p.head * extents.group() + p.query) = all;
      }
    }
  }

  TESSERA_FN float& memory_score(std::int64_t row, std::int64_t head, std::int64_t query) const {
    return step.scores(row, head, query);
  }

  TESSERA_FN float score_of(cached_sequence const& known, work_coordinate const& p, std::int64_t chunk,
                            query_row const& query) const {
    std::int64_t const row = known.first + chunk;
    if (memory.chunk_slots(row, p.head) == static_cast<std::int16_t>(chunk_slot::exact)) {
      return -infinity;
    }
    element_type const* const kept = memory.landmarks.data + memory.landmarks.offset(row, p.head, 0);
    return landmarks::score(selector, query, kept, extents.channels, {chunk, p.head, known.tokens});
  }
};

}  // namespace v0
}  // namespace tessera
