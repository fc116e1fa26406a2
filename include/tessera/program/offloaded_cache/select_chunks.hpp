// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `select_chunks`: selects the chunks that each key head reads in a step: those to which its query heads give the
/// largest shares of a softmax over all landmarks.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/top_k.hpp>

namespace tessera {
inline namespace v0 {

/// Selects chunks. A group for each key head of each step. The selected chunks are in ascending order; of equal ones
/// the earlier is taken; the unused rest of the list is -1.
template <class T, ChunkSelector S>
struct select_chunks {
  using element_type = typename chunk_landmarks<S>::element_type;
  static constexpr int lanes = 256;

  struct scratch_type {
    top_k_scratch digits;           ///< scratch of the search for the largest keys
    float log_sum_exp[most_group];  ///< log-sum-exp of each query head's scores
  };

  offload_extents extents;
  offloaded_memory<T, element_type> memory;
  offload_step<T> step;
  S selector;

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * extents.key_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const at = which / extents.key_heads;
    std::int64_t const head = which % extents.key_heads;
    std::int64_t const sequence = step.sequence(extents, memory.sequences, at);
    std::int64_t taken = 0;
    if (sequence >= 0) {
      cached_sequence const known = memory.sequences[sequence];
      add_blocks(group, at, head, known, scratch);
      std::int64_t const candidates = known.chunks - exact_chunks(sequence, head);
      std::int64_t const budget = min(selector.budget(candidates), extents.budget);
      keys_type const keys{*this, known.first, head, scratch.log_sum_exp};
      taken = top_k(group, keys, known.chunks, budget, scratch.digits, write{*this, at, head});
    }
    for (int lane : group) {
      for (std::int64_t rank = taken + lane; rank < extents.budget; rank += lanes) {
        step.selected(at, head, rank) = -1;
      }
      if (is_first(lane)) {
        step.selected_counts(at, head) = static_cast<std::int32_t>(taken);
      }
    }
  }

  /// The sort key of each chunk: what all queries of a key head give it together; 0 for exact chunks, whose scores are
  /// minus infinity.
  struct keys_type {
    select_chunks const& program;  ///< the program whose step has the scores
    std::int64_t first;            ///< row of the sequence's first chunk
    std::int64_t head;             ///< key head
    float const* log_sum_exp;      ///< log-sum-exps of the scores of each query head
    /// The sort key of a chunk.
    TESSERA_FN std::uint32_t operator()(std::int64_t chunk) const {
      auto const& p = program;
      std::int64_t const row = first + chunk;
      typename S::group_type const agreement;
      float state = agreement.identity();
      bool is_out = false;
      for (std::int64_t i = 0; i < p.extents.group(); ++i) {
        float const score = p.step.scores(row, head, i);
        is_out = is_out || score == -infinity;
        agreement.push(state, score - log_sum_exp[i]);
      }
      if (is_out && p.memory.chunk_slots(row, head) == static_cast<std::int16_t>(chunk_slot::exact)) {
        return 0;
      }
      return ordered_key(agreement.value(state, p.extents.group()));
    }
  };
  /// Adds two sums of exponentials.
  struct add_sums {
    /// The sum of both.
    TESSERA_FN scaled_exponentials<float> operator()(scaled_exponentials<float> a,
                                                     scaled_exponentials<float> const& b) const {
      lse_reducer<float>{}.merge(a, b);
      return a;
    }
  };
  /// The part that lane `lane` of 32 adds up of the blocks' sums of a query; add_sums merges the parts of all lanes.
  TESSERA_FN scaled_exponentials<float> blocks_of_lane(std::int64_t at, std::int64_t query, std::int64_t chunks,
                                                       int lane) const {
    auto sum = lse_reducer<float>{}.identity();
    for (std::int64_t block = lane; block * scored_chunks < chunks; block += 32) {
      lse_reducer<float>{}.merge(sum, step.score_sums(at, block, query));
    }
    return sum;
  }

 private:
  struct write {
    select_chunks const& program;
    std::int64_t at;
    std::int64_t head;
    TESSERA_FN void operator()(std::int64_t rank, std::int64_t chunk) const {
      program.step.selected(at, head, rank) = static_cast<std::int32_t>(chunk);
    }
  };

  template <Group G>
  TESSERA_FN void add_blocks(G const& group, std::int64_t at, std::int64_t head, cached_sequence const& known,
                             scratch_type& scratch) const {
    lse_reducer<float> const reducer;
    group.sync();  // all lanes have read the scratch
    for (std::int64_t i = 0; i < extents.group(); ++i) {
      per_lane<scaled_exponentials<float>, G> own;
      for (int lane : group) {
        own[lane] = lane < 32 ? blocks_of_lane(at, head * extents.group() + i, known.chunks, lane) : reducer.identity();
      }
      auto const all = reduce(group, own, add_sums{});
      for (int lane : group) {
        if (is_first(lane)) {
          scratch.log_sum_exp[i] = reducer.value(all);
        }
      }
    }
    group.sync();
  }

  TESSERA_FN std::int64_t exact_chunks(std::int64_t sequence, std::int64_t head) const {
    std::int64_t count = 0;
    for (std::int64_t index = 0; index < extents.exact(); ++index) {
      count += memory.exact_ids(sequence, head, index) >= 0 ? 1 : 0;
    }
    return count;
  }
};

}  // namespace v0
}  // namespace tessera
