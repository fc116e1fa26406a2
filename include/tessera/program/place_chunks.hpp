// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `place_chunks`: in which slots the selected chunks lie, and which of them have to be fetched. What lies in a slot
/// stays there as long as it is selected; what is missing takes the slots that nothing selected is in, from the one
/// after that taken last on: the longer ago a slot was filled, the sooner it is taken.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/offloaded_memory.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// A group for each key head of each step. Laws: every selected chunk is in one slot; those that were in one are where
/// they were; the missed ones are listed in the order of the selection.
template <class T, class E>
struct place_chunks {
  static constexpr int lanes = 256;

  struct scratch_type {
    std::uint8_t is_used[most_slots];  ///< of each slot: a selected chunk lies in it
  };

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  bool keeps;  ///< false: everything is fetched anew, into the same slots; for tests

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * extents.key_heads; }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    const std::int64_t at = which / extents.key_heads;
    const std::int64_t head = which % extents.key_heads;
    const std::int64_t sequence = step.sequence(extents, memory.sequences, at);
    if (sequence < 0) {
      set_missed(group, at, head, 0);
      return;
    }
    const std::int64_t row = memory.sequences[sequence].first;
    const std::int64_t count = step.selected_counts(at, head);
    mark_used(group, at, head, row, count, scratch);
    const std::int64_t absent = list_absent(group, at, head, row, count);
    give_slots(group, at, head, sequence, absent, scratch);
    group.sync();
    for (int lane : group) {
      for (std::int64_t rank = lane; rank < extents.budget; rank += lanes) {
        const std::int64_t chunk = rank < count ? step.selected(at, head, rank) : -1;
        step.selected_slots(at, head, rank) = chunk < 0 ? -1 : std::int32_t{memory.places(row + chunk, head)};
      }
      if (is_first(lane)) {
        chunk_usage& usage = memory.usage(sequence, head);
        usage = {usage.selected + count, usage.resident + count - absent};
      }
    }
    group.sync();
    if (!keeps) {
      list_all(group, at, head, count);
    }
    set_missed(group, at, head, keeps ? absent : count);
  }

 private:
  template <class Group>
  TESSERA_FN void set_missed(Group const& group, std::int64_t at, std::int64_t head, std::int64_t count) const {
    for (int lane : group) {
      if (is_first(lane)) {
        step.missed_counts(at, head) = static_cast<std::int32_t>(count);
      }
    }
  }

  template <class Group>
  TESSERA_FN void mark_used(Group const& group, std::int64_t at, std::int64_t head, std::int64_t row,
                            std::int64_t count, scratch_type& scratch) const {
    group.sync();  // what was there has been read
    for (int lane : group) {
      for (std::int64_t slot = lane; slot < extents.slots; slot += lanes) {
        scratch.is_used[slot] = 0;
      }
    }
    group.sync();
    for (int lane : group) {
      for (std::int64_t rank = lane; rank < count; rank += lanes) {
        const std::int64_t slot = memory.places(row + step.selected(at, head, rank), head);
        if (slot >= 0) {
          scratch.is_used[slot] = 1;
        }
      }
    }
    group.sync();
  }

  /// Lists the chunks that are in no slot; gives how many.
  template <class Group>
  TESSERA_FN std::int64_t list_absent(Group const& group, std::int64_t at, std::int64_t head, std::int64_t row,
                                      std::int64_t count) const {
    std::int64_t before = 0;
    for (std::int64_t first = 0; first < count; first += lanes) {
      per_lane<std::int32_t, Group> is_absent;
      per_lane<std::int32_t, Group> place;
      for (int lane : group) {
        const std::int64_t rank = first + lane;
        is_absent[lane] = rank < count && memory.places(row + step.selected(at, head, rank), head) < 0 ? 1 : 0;
        place[lane] = is_absent[lane];
      }
      const std::int32_t found = exclusive_sum(group, place);
      for (int lane : group) {
        if (is_absent[lane] != 0) {
          step.missed(at, head, before + place[lane]).chunk = step.selected(at, head, first + lane);
        }
      }
      before += found;
    }
    return before;
  }

  /// Gives the first `absent` listed chunks a free slot each.
  template <class Group>
  TESSERA_FN void give_slots(Group const& group, std::int64_t at, std::int64_t head, std::int64_t sequence,
                             std::int64_t absent, scratch_type& scratch) const {
    const std::int64_t row = memory.sequences[sequence].first;
    const std::int64_t hand = memory.hands(sequence, head);
    group.sync();  // the list is written, the hand is read
    std::int64_t before = 0;
    for (std::int64_t first = 0; first < extents.slots && before < absent; first += lanes) {
      per_lane<std::int32_t, Group> is_free;
      per_lane<std::int32_t, Group> place;
      for (int lane : group) {
        const std::int64_t slot = (hand + first + lane) % extents.slots;
        is_free[lane] = first + lane < extents.slots && scratch.is_used[slot] == 0 ? 1 : 0;
        place[lane] = is_free[lane];
      }
      const std::int32_t found = exclusive_sum(group, place);
      for (int lane : group) {
        const std::int64_t mine = before + place[lane];
        if (is_free[lane] != 0 && mine < absent) {
          const std::int64_t slot = (hand + first + lane) % extents.slots;
          fill(at, head, sequence, row, mine, slot);
          if (mine + 1 == absent) {
            memory.hands(sequence, head) = static_cast<std::int32_t>((slot + 1) % extents.slots);
          }
        }
      }
      before += found;
    }
  }

  TESSERA_FN void fill(std::int64_t at, std::int64_t head, std::int64_t sequence, std::int64_t row, std::int64_t mine,
                       std::int64_t slot) const {
    missed_chunk& missed = step.missed(at, head, mine);
    missed.slot = static_cast<std::int32_t>(slot);
    std::int32_t& id = memory.slot_ids(sequence, head, slot);
    if (id >= 0) {
      memory.places(row + id, head) = static_cast<std::int16_t>(chunk_place::archived);
    }
    id = missed.chunk;
    memory.places(row + id, head) = static_cast<std::int16_t>(slot);
  }

  template <class Group>
  TESSERA_FN void list_all(Group const& group, std::int64_t at, std::int64_t head, std::int64_t count) const {
    for (int lane : group) {
      for (std::int64_t rank = lane; rank < count; rank += lanes) {
        step.missed(at, head, rank) = {step.selected(at, head, rank), step.selected_slots(at, head, rank)};
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
