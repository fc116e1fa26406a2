// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs for the slots of sequences in a cache: `reset_slots` before a new sequence, `fork_slots` for one that
/// continues another, and `advance_pages` after all layers have sealed their pages.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/cache_inputs.hpp>
#include <tessera/view/cache_sequences.hpp>

namespace tessera {
inline namespace v0 {

/// Empties slots: nothing is retained, and no threshold is known. A group takes a slot; a number that is no slot's is
/// reported.
template <class T>
struct reset_slots {
  static constexpr int lanes = 32;
  struct scratch_type {};

  cache_memory<T> memory;
  array_view<std::int32_t const> slots;  ///< numbers of the slots; null: the first ones
  std::int64_t count;                    ///< the number of slots to be reset
  status_word* status;                   ///< where impossible slots are reported

  TESSERA_FN constexpr std::int64_t groups() const { return count; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const slot = slots.data == nullptr ? which : slots[which];
    if (!memory.has_slot(slot)) {
      sequence_fault{status_code::bad_slot, slot, memory.slot_count}.report(group, status, which);
      return;
    }
    for (int lane : group) {
      for (std::int64_t head = lane; head < memory.heads; head += lanes) {
        std::int64_t const at = memory.head_of(slot, head);
        memory.row_counts[at] = 0;
        memory.refused_rows[at] = 0;
        memory.thresholds[2 * at + key_part] = bit_cast<float>(0x7fffffffU);
        memory.thresholds[2 * at + value_part] = bit_cast<float>(0x7fffffffU);
      }
    }
  }
};

/// Copies all that one slot has to another: thresholds, the tail, and retained tokens, in the same rows, since the
/// sealed pages that both sequences have know them by their numbers. After that neither depends on the other. A group
/// takes a head of a pair of slots. A pair is reported and left out if one of its slots does not exist, or if another
/// pair of the call writes to one of its slots.
template <class T>
struct fork_slots {
  static constexpr int lanes = 128;
  struct scratch_type {};

  cache_memory<T> memory;
  array_view<std::int32_t const> from;  ///< slots that are copied
  array_view<std::int32_t const> to;    ///< slots that they are copied to
  status_word* status;                  ///< where impossible pairs are reported

  TESSERA_FN constexpr std::int64_t groups() const { return from.size() * memory.heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const pair = which / memory.heads;
    std::int64_t const head = which % memory.heads;
    for (std::int64_t const slot : {from[pair], to[pair]}) {
      if (!memory.has_slot(slot)) {
        sequence_fault{status_code::bad_slot, slot, memory.slot_count}.report(group, status, pair);
        return;
      }
    }
    if (std::int64_t const other = writer_of(group, pair); other < to.size()) {
      sequence_fault{status_code::written_slot, to[other], other}.report(group, status, pair);
      return;
    }
    copy(group, from[pair], to[pair], head);
  }

 private:
  /// The first other pair that writes to a slot of this one; the number of pairs if none does.
  template <Group G>
  TESSERA_FN std::int64_t writer_of(G const& group, std::int64_t pair) const {
    per_lane<std::int64_t, G> from_last;  // how far before the end of the pairs it is
    for (int lane : group) {
      from_last[lane] = 0;
      for (std::int64_t other = lane; other < to.size(); other += lanes) {
        bool const is_same = to[other] == to[pair] || to[other] == from[pair];
        from_last[lane] = max(from_last[lane], other != pair && is_same ? to.size() - other : std::int64_t{0});
      }
    }
    return to.size() - maximum(group, from_last);
  }

  template <Group G>
  TESSERA_FN void copy(G const& group, std::int64_t source, std::int64_t target, std::int64_t head) const {
    std::int64_t const source_index = memory.head_of(source, head);
    std::int64_t const target_index = memory.head_of(target, head);
    std::int64_t const taken = min(std::int64_t{memory.row_counts[source_index]}, memory.row_capacity);
    std::int64_t const row_values = std::int64_t{2} * memory.format.layers * memory.format.channels;
    std::int64_t const tail_values = std::int64_t{2} * cache_page_format::tokens * memory.format.channels;
    std::int64_t const lists = memory.tail_blocks() * memory.format.layers;
    copy_values(group, memory.retained_row(source, head, 0, 0, 0), memory.retained_row(target, head, 0, 0, 0),
                taken * row_values);
    for (std::int64_t list = 0; list < lists; ++list) {
      auto const layer = static_cast<int>(list % memory.format.layers);
      std::int64_t const token = list / memory.format.layers * cache_page_format::tokens;
      copy_values(group, memory.tail_row(source, layer, key_part, head, token),
                  memory.tail_row(target, layer, key_part, head, token), tail_values);
    }
    for (int lane : group) {
      if (is_first(lane)) {
        memory.row_counts[target_index] = memory.row_counts[source_index];
        memory.refused_rows[target_index] = memory.refused_rows[source_index];
        memory.thresholds[2 * target_index + key_part] = memory.thresholds[2 * source_index + key_part];
        memory.thresholds[2 * target_index + value_part] = memory.thresholds[2 * source_index + value_part];
      }
    }
  }

  /// Copies elements, a multiple of eight.
  template <Group G>
  TESSERA_FN static void copy_values(G const& group, T const* source, T* target, std::int64_t count) {
    for (int lane : group) {
      for (std::int64_t i = lane; i < count / row_chunk<T>::channels; i += lanes) {
        row_chunk<T>::of({source, 1}, i).store_to(target, i);
      }
    }
  }
};

/// Counts the pages that can be sealed as sealed. An impossible count is reported and stays. A group takes 32
/// sequences.
struct advance_pages {
  static constexpr int lanes = 32;
  struct scratch_type {};

  cache_sequences sequences;
  std::int64_t window;             ///< tokens that stay in the tail
  std::int64_t most_pages;         ///< the most pages of a sequence that are sealed at a time
  array_view<std::int32_t> pages;  ///< sealed pages of each sequence
  status_word* status;             ///< where impossible counts are reported

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(sequences.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const sequence = which * lanes + lane;
      if (sequence < sequences.size()) {
        std::int64_t const first = pages[sequence];
        std::int64_t const table = sequences.blocks.extent(1);
        if (first < 0 || first > table) {
          group.report(status, status_code::bad_page_count, sequence, {first, table});
          continue;
        }
        std::int64_t const most = min(first + most_pages, table);
        std::int64_t const end = max(first, min(sealed_pages(sequences.length(sequence), window), most));
        pages[sequence] = static_cast<std::int32_t>(end);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
