// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `assign_slots`: assigns slots to the selected chunks and lists those that have to be fetched. A chunk stays in its
/// slot as long as it is selected. Missing chunks take slots that hold no selected chunk, beginning after the slot that
/// was taken last, so that slots that were filled longer ago are taken first.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// Assigns slots. A group for each key head of each step. Laws: every selected chunk is in one slot; those that were in
/// a slot stay there; the missed ones are listed in the order of the selection.
template <class T, class E>
struct assign_slots {
  static constexpr int lanes = 256;

  struct scratch_type {
    std::uint8_t is_used[most_slots];  ///< whether a selected chunk is in a slot
    std::int16_t slots[most_slots];    ///< the slot of each selected chunk; negative: none
    std::int16_t absent[most_slots];   ///< ranks of the selected chunks that have no slot
  };

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  bool keeps;  ///< whether chunks are kept in slots; false: everything is fetched anew into the same slots, for tests

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * extents.key_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const at = which / extents.key_heads;
    std::int64_t const head = which % extents.key_heads;
    std::int64_t const sequence = step.sequence(extents, memory.sequences, at);
    if (sequence < 0) {
      set_missed(group, at, head, 0);
      return;
    }
    step_head const where{at, head, sequence, memory.sequences[sequence].first};
    std::int64_t const count = step.selected_counts(at, head);
    // Loaded early, as is the usage, so that nothing waits for them later.
    std::int64_t const hand = memory.hands(sequence, head);
    chunk_usage const before = memory.usage(sequence, head);
    find_slots(group, where, count, scratch);
    std::int64_t const absent = list_absent(group, count, scratch);
    group.sync();  // the list is written, and the hand has been read
    give_slots(group, where, hand, absent, scratch);
    group.sync();
    for (int lane : group) {
      for (std::int64_t rank = lane; rank < extents.budget; rank += lanes) {
        step.selected_slots(at, head, rank) = rank < count ? std::int32_t{scratch.slots[rank]} : -1;
        if (!keeps && rank < count) {
          step.missed(at, head, rank) = {step.selected(at, head, rank), scratch.slots[rank]};
        }
      }
      if (is_first(lane)) {
        memory.usage(sequence, head) = {before.selected + count, before.resident + count - absent};
      }
    }
    set_missed(group, at, head, keeps ? absent : count);
  }

 private:
  struct step_head {
    std::int64_t at;
    std::int64_t head;
    std::int64_t sequence;
    std::int64_t row;  ///< row of the sequence's first chunk
  };

  template <Group G>
  TESSERA_FN void set_missed(G const& group, std::int64_t at, std::int64_t head, std::int64_t count) const {
    for (int lane : group) {
      if (is_first(lane)) {
        step.missed_counts(at, head) = static_cast<std::int32_t>(count);
      }
    }
  }

  template <Group G>
  TESSERA_FN void find_slots(G const& group, step_head const& p, std::int64_t count, scratch_type& scratch) const {
    group.sync();  // all lanes have read the scratch
    for (int lane : group) {
      for (std::int64_t slot = lane; slot < extents.slots; slot += lanes) {
        scratch.is_used[slot] = 0;
      }
    }
    group.sync();
    for (int lane : group) {
      for (std::int64_t rank = lane; rank < count; rank += lanes) {
        std::int16_t const slot = memory.chunk_slots(p.row + step.selected(p.at, p.head, rank), p.head);
        scratch.slots[rank] = slot;
        if (slot >= 0) {
          scratch.is_used[slot] = 1;
        }
      }
    }
    group.sync();
  }

  /// Lists the chunks that are in no slot, and returns how many there are.
  template <Group G>
  TESSERA_FN std::int64_t list_absent(G const& group, std::int64_t count, scratch_type& scratch) const {
    std::int64_t before = 0;
    for (std::int64_t first = 0; first < count; first += lanes) {
      per_lane<std::int32_t, G> position;
      for (int lane : group) {
        position[lane] = first + lane < count && scratch.slots[first + lane] < 0 ? 1 : 0;
      }
      std::int32_t const found = exclusive_sum(group, position);
      for (int lane : group) {
        if (first + lane < count && scratch.slots[first + lane] < 0) {
          scratch.absent[before + position[lane]] = static_cast<std::int16_t>(first + lane);
        }
      }
      before += found;
    }
    return before;
  }

  /// Gives the first `absent` listed chunks a free slot each.
  template <Group G>
  TESSERA_FN void give_slots(G const& group, step_head const& p, std::int64_t hand, std::int64_t absent,
                             scratch_type& scratch) const {
    std::int64_t before = 0;
    for (std::int64_t first = 0; first < extents.slots && before < absent; first += lanes) {
      per_lane<std::int32_t, G> position;
      for (int lane : group) {
        position[lane] = first + lane < extents.slots && scratch.is_used[slot_after(hand, first + lane)] == 0 ? 1 : 0;
      }
      std::int32_t const found = exclusive_sum(group, position);
      for (int lane : group) {
        std::int64_t const mine = before + position[lane];
        if (first + lane < extents.slots && scratch.is_used[slot_after(hand, first + lane)] == 0 && mine < absent) {
          std::int64_t const slot = slot_after(hand, first + lane);
          std::int16_t const rank = scratch.absent[mine];
          scratch.slots[rank] = static_cast<std::int16_t>(slot);
          fill(p, step.selected(p.at, p.head, rank), slot, step.missed(p.at, p.head, mine));
          if (mine + 1 == absent) {
            memory.hands(p.sequence, p.head) = static_cast<std::int32_t>(slot_after(slot, 1));
          }
        }
      }
      before += found;
    }
  }
  /// The slot `by` slots later; `by` is at most the number of slots.
  TESSERA_FN constexpr std::int64_t slot_after(std::int64_t slot, std::int64_t by) const {
    return slot + by < extents.slots ? slot + by : slot + by - extents.slots;
  }

  TESSERA_FN void fill(step_head const& p, std::int32_t chunk, std::int64_t slot, missed_chunk& missed) const {
    missed = {chunk, static_cast<std::int32_t>(slot)};
    std::int32_t& id = memory.slot_ids(p.sequence, p.head, slot);
    if (id >= 0) {
      memory.chunk_slots(p.row + id, p.head) = static_cast<std::int16_t>(chunk_slot::archived);
    }
    id = chunk;
    memory.chunk_slots(p.row + chunk, p.head) = static_cast<std::int16_t>(slot);
  }
};

}  // namespace v0
}  // namespace tessera
