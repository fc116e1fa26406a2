// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `find_apart` finds the tokens of pages whose keys or values are too different to merge. `mark_rows` decides which of
/// them are retained, and in which rows: page after page, while there are rows left.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/cache_inputs.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// The lowest `count` of the set bits.
[[nodiscard]] TESSERA_FN constexpr std::uint64_t lowest_bits(std::uint64_t bits, std::uint32_t count) {
  std::uint64_t kept = 0;
  for (; count > 0 && bits != 0; --count) {
    std::uint64_t const lowest = bits & (~bits + 1);
    kept |= lowest;
    bits ^= lowest;
  }
  return kept;
}

/// Writes the tokens that are too different to the bits of marks. Row: an argument of angle_of(). A group takes the
/// page of a head.
template <class T, class Row = merged_row>
struct find_apart {
  static constexpr int lanes = 32;
  struct scratch_type {};

  cache_source<T> source;
  view<Row const, 5> rows;   ///< sequence x page sealed in this call x head x {key, value} x 64
  view<page_mark, 3> marks;  ///< sequence x page x head

  TESSERA_FN constexpr std::int64_t groups() const { return marks.size(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which % marks.extent(2);
    std::int64_t const i = which / marks.extent(2) % marks.extent(1);
    std::int64_t const sequence = which / marks.extent(2) / marks.extent(1);
    if (source.first_page(sequence) + i >= source.end_page(sequence)) {
      return;
    }
    std::int64_t const slot = source.sequences.slot(sequence);
    per_lane<std::uint64_t, G> found;
    for (int lane : group) {
      found[lane] = 0;
      for (int token = lane; token < cache_page_format::tokens; token += lanes) {
        bool const stays = source.memory.row_capacity > 0 && is_different(sequence, i, head, slot, token);
        found[lane] |= std::uint64_t{stays ? 1U : 0U} << token;
      }
    }
    std::uint64_t const all = sum(group, found);
    for (int lane : group) {
      if (is_first(lane)) {
        marks(sequence, i, head) = {all, 0, 0};
      }
    }
  }

 private:
  TESSERA_FN bool is_different(std::int64_t sequence, std::int64_t page, std::int64_t head, std::int64_t slot,
                               int token) const {
    float const key = angle_of(rows(sequence, page, head, key_part, token));
    float const value = angle_of(rows(sequence, page, head, value_part, token));
    return stays_apart(key, source.memory.threshold(slot, head, key_part)) ||
           stays_apart(value, source.memory.threshold(slot, head, value_part)) || is_nearly_opposite(key) ||
           is_nearly_opposite(value);
  }
};

/// Gives the tokens that find_apart has found rows, while there are some left. A group takes a head of a sequence.
template <class T>
struct mark_rows {
  static constexpr int lanes = 64;
  struct scratch_type {};

  cache_source<T> source;
  view<page_mark, 3> marks;  ///< sequence x page sealed in this call x head

  TESSERA_FN constexpr std::int64_t groups() const { return marks.extent(0) * marks.extent(2); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    cache_memory<T> const& memory = source.memory;
    std::int64_t const head = which % marks.extent(2);
    std::int64_t const sequence = which / marks.extent(2);
    std::int64_t const pages = source.end_page(sequence) - source.first_page(sequence);
    std::int64_t const at = memory.head_of(source.sequences.slot(sequence), head);
    if (memory.row_capacity == 0 || pages <= 0) {
      return;
    }
    auto const capacity = static_cast<std::uint32_t>(memory.row_capacity);
    std::uint32_t taken = memory.row_counts[at];
    std::uint32_t refused = memory.refused_rows[at];
    group.sync();  // all lanes have read the counts
    for (std::int64_t first = 0; first < pages; first += lanes) {
      std::uint32_t const room = capacity - taken;
      per_lane<std::uint32_t, G> before;
      for (int lane : group) {
        before[lane] = first + lane < pages ? wanted_of(marks(sequence, first + lane, head)) : 0;
      }
      std::uint32_t const wanted = exclusive_sum(group, before);
      for (int lane : group) {
        if (first + lane < pages) {
          page_mark& mark = marks(sequence, first + lane, head);
          std::uint32_t const left = room - min(before[lane], room);
          std::uint32_t const granted = min(wanted_of(mark), left);
          mark = {lowest_bits(mark.retained, granted), granted > 0 ? taken + before[lane] : 0, granted};
        }
      }
      taken += min(wanted, room);
      refused += wanted - min(wanted, room);
    }
    for (int lane : group) {
      if (is_first(lane)) {
        memory.row_counts[at] = taken;
        memory.refused_rows[at] = refused;
      }
    }
  }

 private:
  TESSERA_FN static std::uint32_t wanted_of(page_mark const& mark) {
    return static_cast<std::uint32_t>(popcount(mark.retained));
  }
};

}  // namespace v0
}  // namespace tessera
