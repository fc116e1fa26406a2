// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs of a step of an offloaded cache whose caller gives the chunks:
///
///     admit_lists      checks the lists of a step before anything is written
///     take_lists       writes them as select_chunks (program/offloaded_cache/select_chunks.hpp) writes its choice
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/chunk_lists.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// Finds the steps whose lists are without fault. A list has a fault if its count is negative or more than its entries,
/// a number is below -1 or that of no archived chunk, or a chunk occurs twice. Faults are reported, and the step is
/// then of no sequence; steps with a step_fault, which append_tokens reports, pass. A group for each step.
template <class T, class E>
struct admit_lists {
  static constexpr int lanes = 128;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  chunk_lists lists;                   ///< the chunks that the caller gives
  array_view<std::int32_t> sequences;  ///< the sequence that each step is of from now on
  status_word* of_counts;              ///< for faults of counts; the position counts lists
  status_word* of_chunks;              ///< for faults of chunks; the position counts entries of all lists

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t named = step.named(which);
    if (named != -1 && step.fault(extents, memory.sequences, which) == step_fault::none) {
      std::int32_t faults = 0;
      for (std::int64_t head = 0; head < extents.key_heads; ++head) {
        faults += faults_of(group, which, head, memory.sequences[named].chunks);
      }
      named = faults > 0 ? -1 : named;
    }
    for (int lane : group) {
      if (is_first(lane)) {
        sequences[which] = static_cast<std::int32_t>(named);
      }
    }
  }

 private:
  /// The faults of a list, which are reported; all lanes get their number.
  template <Group G>
  TESSERA_FN std::int32_t faults_of(G const& group, std::int64_t at, std::int64_t head, std::int64_t archived) const {
    std::int64_t const list = at * extents.key_heads + head;
    std::int64_t const entries = lists.chunks.extent(2);
    std::int64_t const count = lists.count(at, head);
    if (count < 0 || count > entries) {
      for (int lane : group) {
        if (is_first(lane)) {
          group.report(of_counts, status_code::out_of_range, list, {count, entries + 1});
        }
      }
      return 1;
    }
    per_lane<std::int32_t, G> own;
    for (int lane : group) {
      own[lane] = 0;
      for (std::int64_t index = lane; index < count; index += lanes) {
        std::int64_t const chunk = lists.chunks(at, head, index);
        if (chunk < -1 || chunk >= archived) {
          group.report(of_chunks, status_code::out_of_range, list * entries + index, {chunk, archived});
          ++own[lane];
        } else if (chunk >= 0 && is_repeated(at, head, index)) {
          group.report(of_chunks, status_code::repeated_index, list * entries + index, {chunk, archived});
          ++own[lane];
        }
      }
    }
    return exclusive_sum(group, own);
  }
  TESSERA_FN bool is_repeated(std::int64_t at, std::int64_t head, std::int64_t index) const {
    for (std::int64_t before = 0; before < index; ++before) {
      if (lists.chunks(at, head, before) == lists.chunks(at, head, index)) {
        return true;
      }
    }
    return false;
  }
};

/// Writes the given chunks that are not kept exactly, in ascending order. A group for each key head of each step.
template <class T, class E>
struct take_lists {
  static constexpr int lanes = 256;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  chunk_lists lists;  ///< without fault, where the step is of a sequence

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * extents.key_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const at = which / extents.key_heads;
    std::int64_t const head = which % extents.key_heads;
    std::int64_t const sequence = step.sequence(extents, memory.sequences, at);
    std::int64_t const count = sequence < 0 ? 0 : lists.count(at, head);
    std::int64_t const row = sequence < 0 ? 0 : memory.sequences[sequence].first;
    per_lane<std::int32_t, G> own;
    for (int lane : group) {
      own[lane] = 0;
      for (std::int64_t index = lane; index < count; index += lanes) {
        std::int32_t const chunk = lists.chunks(at, head, index);
        if (is_taken(row, head, chunk)) {
          step.selected(at, head, rank_of(row, at, head, count, chunk)) = chunk;
          ++own[lane];
        }
      }
    }
    std::int32_t const taken = exclusive_sum(group, own);
    for (int lane : group) {
      for (std::int64_t rank = taken + lane; rank < extents.budget; rank += lanes) {
        step.selected(at, head, rank) = -1;
      }
      if (is_first(lane)) {
        step.selected_counts(at, head) = taken;
      }
    }
  }

 private:
  TESSERA_FN bool is_taken(std::int64_t row, std::int64_t head, std::int32_t chunk) const {
    return chunk >= 0 && memory.chunk_slots(row + chunk, head) != static_cast<std::int16_t>(chunk_slot::exact);
  }
  /// How many chunks of the list that are taken come before a chunk.
  TESSERA_FN std::int64_t rank_of(std::int64_t row, std::int64_t at, std::int64_t head, std::int64_t count,
                                  std::int32_t chunk) const {
    std::int64_t before = 0;
    for (std::int64_t index = 0; index < count; ++index) {
      std::int32_t const other = lists.chunks(at, head, index);
      before += other < chunk && is_taken(row, head, other) ? 1 : 0;
    }
    return before;
  }
};

}  // namespace v0
}  // namespace tessera
