// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `fetch_records`: a fetch_values (program/offloaded_cache/rebuild_keys.hpp) with few groups, for executors whose
/// groups wait for memory. 32 lanes issue all loads of the record of a missed chunk before they wait for the first of
/// them. Groups share one list of all missed chunks, so that all have the same amount of work, however many chunks each
/// head misses.
///
/// A bus of 55 GB/s with a latency of 2 us is busy with 110 KB in flight. 64 groups of 8 records of 2 KB have 1 MB in
/// flight, and take a tenth of a device, the rest of which is left to concurrent work. On an H200 they were measured to
/// load 50.5 GB/s; its copy engine loads 51 block by block, and 55 when the runtime copies whole buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/offloaded_cache/rebuild_keys.hpp>
#include <tessera/program/offloaded_cache/value_record.hpp>
#include <tessera/quantize/value_codec.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// An item in one of several lists.
struct listed_item {
  std::int32_t list;   ///< the list that has the item
  std::int32_t index;  ///< its index in that list
};
/// Finds item `item` of all lists, one after the other. `ends`: the number of items in each list and all lists before
/// it.
[[nodiscard]] TESSERA_FN constexpr listed_item find_item(std::int32_t const* ends, std::int32_t lists,
                                                         std::int32_t item) {
  std::int32_t first = 0;
  for (std::int32_t left = lists; left > 0;) {
    std::int32_t const half = left / 2;
    bool const is_behind = ends[first + half] <= item;
    first = is_behind ? first + half + 1 : first;
    left = is_behind ? left - half - 1 : half;
  }
  return {first, item - (first == 0 ? 0 : ends[first - 1])};
}

/// Fetches the records of missed chunks. Channels: the channels of a head, which records of codes need at compile time.
/// T has two bytes.
template <int Channels, class T, class E, class Codec>
struct fetch_records {
  /// The portable program, whose members are the arguments.
  using call_type = fetch_values<T, E, Codec>;
  using record = typename call_type::record;
  static constexpr int lanes = 256;
  static constexpr int records = lanes / 32;  ///< records that a group fetches at a time
  /// Whether records hold codes, and not uncoded values.
  static constexpr bool are_codes = !std::is_same_v<Codec, exact_values>;
  /// The most lists of missed chunks, one for each key head of each step.
  static constexpr std::int64_t most_lists = 2048;
  static constexpr int most_words = are_codes ? 160 : 1;  ///< the most 16-byte words of a record of codes
  static_assert(sizeof(T) == 2, "tessera: fetch_records writes values of two bytes");

  struct scratch_type {
    std::int32_t ends[most_lists];             ///< missed chunks of each list and all lists before it
    record_words staged[records][most_words];  ///< records of codes, before they are decoded
  };

  call_type call;      ///< extents, memory and step
  std::int64_t count;  ///< groups of the launch

  [[nodiscard]] constexpr std::int64_t groups() const { return count; }
  /// Whether the program can take a call.
  [[nodiscard]] static constexpr bool takes(call_type const& call) {
    return call.step.steps() * call.extents.key_heads <= most_lists && call.extents.channels == Channels &&
           (!are_codes || record::bytes(call.extents.chunk, Channels) <=
                              most_words * static_cast<std::int64_t>(sizeof(record_words)));
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int32_t const total = add_counts(group, scratch);
    auto const step = static_cast<std::int32_t>(count * records);
    for (auto first = static_cast<std::int32_t>(which * records); first < total; first += step) {
      if constexpr (are_codes) {
        group.sync();  // all lanes have read the scratch
        for (int lane : group) {
          if (first + lane / 32 < total) {
            record_copy const found = find(scratch, first + lane / 32);
            move(found.from, scratch.staged[lane / 32], record_count(), lane % 32);
          }
        }
        group.sync();
        for (int lane : group) {
          if (first + lane / 32 < total) {
            decode(scratch.staged[lane / 32], find(scratch, first + lane / 32).to, lane % 32);
          }
        }
      } else {
        for (int lane : group) {
          if (first + lane / 32 < total) {
            record_copy const found = find(scratch, first + lane / 32);
            move(found.from, reinterpret_cast<record_words*>(found.to), record_count(), lane % 32);
          }
        }
      }
    }
  }

 private:
  struct record_copy {
    record_words const* from;
    T* to;
  };

  /// The 16-byte words of a record that hold values: a record of uncoded values may end with unused bytes.
  TESSERA_FN constexpr std::int32_t record_count() const {
    std::int64_t const bytes = are_codes ? record::bytes(call.extents.chunk, Channels)
                                         : call.extents.chunk * Channels * static_cast<std::int64_t>(sizeof(T));
    return static_cast<std::int32_t>(bytes / static_cast<std::int64_t>(sizeof(record_words)));
  }

  template <Group G>
  TESSERA_FN std::int32_t add_counts(G const& group, scratch_type& scratch) const {
    std::int64_t const heads = call.extents.key_heads;
    std::int64_t const lists = call.step.steps() * heads;
    std::int32_t before = 0;
    group.sync();  // all lanes have read the scratch
    for (std::int64_t first = 0; first < lists; first += lanes) {
      per_lane<std::int32_t, G> own;
      per_lane<std::int32_t, G> position;
      for (int lane : group) {
        std::int64_t const list = first + lane;
        own[lane] = list < lists ? call.step.missed_counts(list / heads, list % heads) : 0;
        position[lane] = own[lane];
      }
      std::int32_t const found = exclusive_sum(group, position);
      for (int lane : group) {
        if (first + lane < lists) {
          scratch.ends[first + lane] = before + position[lane] + own[lane];
        }
      }
      before += found;
    }
    group.sync();
    return before;
  }

  TESSERA_FN record_copy find(scratch_type const& scratch, std::int32_t item) const {
    auto const heads = static_cast<std::int32_t>(call.extents.key_heads);
    auto const lists = static_cast<std::int32_t>(call.step.steps()) * heads;
    listed_item const found = find_item(scratch.ends, lists, item);
    std::int64_t const at = found.list / heads;
    std::int64_t const head = found.list % heads;
    missed_chunk const missed = call.step.missed(at, head, found.index);
    std::int64_t const sequence = call.step.named(at);
    std::int64_t const row = call.memory.sequences[sequence].first + missed.chunk;
    return {reinterpret_cast<record_words const*>(&call.memory.values(row, head, 0)),
            &call.memory.slot_values(sequence, head, missed.slot, 0, 0)};
  }

  /// Copies a record. A lane issues all its loads of a record of up to 2 KB before its first store.
  TESSERA_FN static void move(record_words const* from, record_words* to, std::int32_t words, int lane) {
    constexpr int at_a_time = 4;
    for (std::int32_t first = lane; first < words; first += 32 * at_a_time) {
      record_words held[at_a_time];
      for (int i = 0; i < at_a_time; ++i) {
        held[i] = first + 32 * i < words ? from[first + 32 * i] : record_words{};
      }
      for (int i = 0; i < at_a_time; ++i) {
        if (first + 32 * i < words) {
          to[first + 32 * i] = held[i];
        }
      }
    }
  }

  TESSERA_FN void decode(record_words const* staged, T* to, int lane) const {
    constexpr int each = 8;
    auto const* const from = reinterpret_cast<std::byte const*>(staged);
    for (std::int64_t first = each * lane; first < call.extents.chunk * Channels; first += 32 * each) {
      struct alignas(16) piece {
        T values[each];
      };
      piece made;
      for (int i = 0; i < each; ++i) {
        std::int64_t const at = first + i;
        made.values[i] = record::get(from, call.extents.chunk, Channels, at / Channels, at % Channels);
      }
      *reinterpret_cast<piece*>(to + first) = made;
    }
  }
};

}  // namespace v0
}  // namespace tessera
