// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `select_chunks`: which chunks each key head reads in a step: those that its query heads give the largest shares of a
/// softmax over all landmarks.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/offloaded_memory.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/top_k.hpp>

namespace tessera {
inline namespace v0 {

/// A group for each key head of each step. Chunks come in ascending order, of equal ones the earlier is taken; what is
/// not needed of the list is -1.
template <class T, ChunkSelector S>
struct select_chunks {
  using element_type = typename chunk_landmarks<S>::element_type;
  static constexpr int lanes = 256;

  struct scratch_type {
    top_k_scratch digits;           ///< for the largest ones
    float log_sum_exp[most_group];  ///< of each head's scores
  };

  offload_extents extents;
  offloaded_memory<T, element_type> memory;
  offload_step<T> step;
  S selector;

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * extents.key_heads; }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    const std::int64_t at = which / extents.key_heads;
    const std::int64_t head = which % extents.key_heads;
    const std::int64_t sequence = step.sequence(extents, memory.sequences, at);
    std::int64_t taken = 0;
    if (sequence >= 0) {
      const cached_sequence known = memory.sequences[sequence];
      add_blocks(group, at, head, known, scratch);
      const std::int64_t candidates = known.chunks - exact_chunks(sequence, head);
      const std::int64_t budget = min(selector.budget(candidates), extents.budget);
      const shares_of keys{*this, known.first, head, scratch.log_sum_exp};
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

 private:
  struct shares_of {
    select_chunks const& program;
    std::int64_t first;
    std::int64_t head;
    float const* log_sum_exp;
    TESSERA_FN std::uint32_t operator()(std::int64_t chunk) const {
      const auto& p = program;
      if (p.memory.places(first + chunk, head) == static_cast<std::int16_t>(chunk_place::exact)) {
        return 0;
      }
      const typename S::group_type agreement;
      float state = agreement.identity();
      for (std::int64_t i = 0; i < p.extents.group(); ++i) {
        agreement.push(state, p.step.scores(first + chunk, head, i) - log_sum_exp[i]);
      }
      return ordered_key(agreement.value(state, p.extents.group()));
    }
  };
  struct write {
    select_chunks const& program;
    std::int64_t at;
    std::int64_t head;
    TESSERA_FN void operator()(std::int64_t rank, std::int64_t chunk) const {
      program.step.selected(at, head, rank) = static_cast<std::int32_t>(chunk);
    }
  };

  template <class Group>
  TESSERA_FN void add_blocks(Group const& group, std::int64_t at, std::int64_t head, cached_sequence const& known,
                             scratch_type& scratch) const {
    const lse_reducer<float> reducer;
    group.sync();  // what was there has been read
    for (int lane : group) {
      if (lane < extents.group()) {
        auto all = reducer.identity();
        for (std::int64_t block = 0; block * scored_chunks < known.chunks; ++block) {
          reducer.merge(all, step.score_sums(at, block, head * extents.group() + lane));
        }
        scratch.log_sum_exp[lane] = reducer.value(all);
      }
    }
    group.sync();
  }

  TESSERA_FN std::int64_t exact_chunks(std::int64_t sequence, std::int64_t head) const {
    std::int64_t count = 0;
    for (std::int64_t place = 0; place < extents.exact(); ++place) {
      count += memory.exact_ids(sequence, head, place) >= 0 ? 1 : 0;
    }
    return count;
  }
};

}  // namespace v0
}  // namespace tessera
