// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What sequences have for themselves in a cache: `reset_slots` before a new one, `fork_slots` for one that goes on
/// from another, and `advance_pages` after all layers have sealed theirs.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/cache_memory.hpp>
#include <tessera/program/cache_page.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// Nothing is retained, and no threshold is known. A group takes a slot.
template <class T>
struct reset_slots {
  static constexpr int lanes = 32;
  struct scratch_type {};

  cache_memory<T> memory;
  array_view<std::int32_t const> slots;  ///< null: the first ones
  std::int64_t count;                    ///< slots to be reset

  TESSERA_FN constexpr std::int64_t groups() const { return count; }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      for (std::int64_t head = lane; head < memory.heads; head += lanes) {
        std::int64_t const at = memory.head_of(slots.data == nullptr ? which : slots[which], head);
        memory.row_counts[at] = 0;
        memory.refused_rows[at] = 0;
        memory.thresholds[2 * at + key_part] = bit_cast<float>(0x7fffffffU);
        memory.thresholds[2 * at + value_part] = bit_cast<float>(0x7fffffffU);
      }
    }
  }
};

/// Thresholds and the tail of one slot for another. What is retained stays where it is: sealed pages, which both
/// sequences have in their block tables, know where. A group takes a pair of slots.
template <class T>
struct fork_slots {
  static constexpr int lanes = 128;
  struct scratch_type {};

  cache_memory<T> memory;
  array_view<std::int32_t const> from;  ///< slots that are copied
  array_view<std::int32_t const> to;    ///< slots that they are copied to

  TESSERA_FN constexpr std::int64_t groups() const { return from.size(); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const tail_values = memory.tail_values(1);
    for (int lane : group) {
      for (std::int64_t i = lane; i < tail_values; i += lanes) {
        memory.tail[to[which] * tail_values + i] = memory.tail[from[which] * tail_values + i];
      }
      for (std::int64_t i = lane; i < 2 * memory.heads; i += lanes) {
        memory.thresholds[2 * memory.head_of(to[which], 0) + i] =
            memory.thresholds[2 * memory.head_of(from[which], 0) + i];
      }
      for (std::int64_t head = lane; head < memory.heads; head += lanes) {
        memory.row_counts[memory.head_of(to[which], head)] = 0;
        memory.refused_rows[memory.head_of(to[which], head)] = 0;
      }
    }
  }
};

/// Counts the pages that can be sealed as sealed. A group takes 32 sequences.
struct advance_pages {
  static constexpr int lanes = 32;
  struct scratch_type {};

  cache_sequences sequences;
  std::int64_t window;             ///< tokens that stay in the tail
  std::int64_t most_pages;         ///< of a sequence, at a time
  array_view<std::int32_t> pages;  ///< sealed pages of each sequence

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(sequences.count, std::int64_t{lanes}); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const sequence = which * lanes + lane;
      if (sequence < sequences.count) {
        std::int64_t const first = pages[sequence];
        std::int64_t const most = min(first + most_pages, sequences.blocks.extent(1));
        std::int64_t const end = max(first, min(sealed_pages(sequences.length(sequence), window), most));
        pages[sequence] = static_cast<std::int32_t>(end);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
