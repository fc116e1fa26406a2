// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `fetch_records`: fetch_values (program/offloaded_cache/rebuild_keys.hpp) by few groups, for executors whose groups
/// wait for memory: each of 32 lanes asks for the whole record of a missed chunk before the first part of it is there.
/// Groups go through one list of all missed chunks, so that all have the same to do, whatever each head misses.
///
/// A bus of 55 GB/s that answers after 2 us is busy with 110 KB asked for; 64 groups of 8 records of 2 KB ask for 1 MB,
/// and take a tenth of a device, the rest of which is left to what runs beside them. An H200 was measured to bring 50.5
/// GB/s so, and 51 by its copy engine block by block, where the runtime's copies of whole buffers have 55.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/offloaded_cache/rebuild_keys.hpp>
#include <tessera/program/offloaded_cache/value_record.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// An item of several lists.
struct listed_item {
  std::int32_t list;   ///< that has it
  std::int32_t place;  ///< in that list
};
/// Item `item` of all lists, one after the other. `ends`: the number of items in each list and those before.
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

/// Channels: of a head, known for records of codes; T has two bytes.
template <int Channels, class T, class E, class Codec>
struct fetch_records {
  /// The portable program, whose members say what is to be done.
  using call_type = fetch_values<T, E, Codec>;
  using record = typename call_type::record;
  static constexpr int lanes = 256;
  static constexpr int records = lanes / 32;  ///< that a group brings at a time
  /// Whether records are of codes, else of values as they are.
  static constexpr bool are_codes = !std::is_same_v<Codec, exact_values>;
  static constexpr std::int64_t most_lists = 2048;        ///< of missed chunks, one for each key head of each step
  static constexpr int most_words = are_codes ? 160 : 1;  ///< of 16 bytes, of a record of codes
  static_assert(sizeof(T) == 2, "tessera: fetch_records writes values of two bytes");

  struct scratch_type {
    std::int32_t ends[most_lists];             ///< missed chunks of each list and those before
    record_words staged[records][most_words];  ///< records of codes, before they are decoded
  };

  call_type call;      ///< extents, memory and step
  std::int64_t count;  ///< groups of the launch

  [[nodiscard]] constexpr std::int64_t groups() const { return count; }
  /// Whether the program can do a call.
  [[nodiscard]] static constexpr bool takes(call_type const& call) {
    return call.step.steps() * call.extents.key_heads <= most_lists && call.extents.channels == Channels &&
           (!are_codes || record::bytes(call.extents.chunk, Channels) <=
                              most_words * static_cast<std::int64_t>(sizeof(record_words)));
  }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    std::int32_t const total = add_counts(group, scratch);
    auto const step = static_cast<std::int32_t>(count * records);
    for (auto first = static_cast<std::int32_t>(which * records); first < total; first += step) {
      if constexpr (are_codes) {
        group.sync();  // what was there has been read
        for (int lane : group) {
          if (first + lane / 32 < total) {
            record_place const found = find(scratch, first + lane / 32);
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
            record_place const found = find(scratch, first + lane / 32);
            move(found.from, reinterpret_cast<record_words*>(found.to), record_count(), lane % 32);
          }
        }
      }
    }
  }

 private:
  struct record_place {
    record_words const* from;
    T* to;
  };

  /// Of a record; of values as they are there may be bytes behind them that are none.
  TESSERA_FN constexpr std::int32_t record_count() const {
    std::int64_t const bytes = are_codes ? record::bytes(call.extents.chunk, Channels)
                                         : call.extents.chunk * Channels * static_cast<std::int64_t>(sizeof(T));
    return static_cast<std::int32_t>(bytes / static_cast<std::int64_t>(sizeof(record_words)));
  }

  template <class Group>
  TESSERA_FN std::int32_t add_counts(Group const& group, scratch_type& scratch) const {
    std::int64_t const heads = call.extents.key_heads;
    std::int64_t const lists = call.step.steps() * heads;
    std::int32_t before = 0;
    group.sync();  // what was there has been read
    for (std::int64_t first = 0; first < lists; first += lanes) {
      per_lane<std::int32_t, Group> own;
      per_lane<std::int32_t, Group> place;
      for (int lane : group) {
        std::int64_t const list = first + lane;
        own[lane] = list < lists ? call.step.missed_counts(list / heads, list % heads) : 0;
        place[lane] = own[lane];
      }
      std::int32_t const found = exclusive_sum(group, place);
      for (int lane : group) {
        if (first + lane < lists) {
          scratch.ends[first + lane] = before + place[lane] + own[lane];
        }
      }
      before += found;
    }
    group.sync();
    return before;
  }

  TESSERA_FN record_place find(scratch_type const& scratch, std::int32_t item) const {
    auto const heads = static_cast<std::int32_t>(call.extents.key_heads);
    auto const lists = static_cast<std::int32_t>(call.step.steps()) * heads;
    listed_item const found = find_item(scratch.ends, lists, item);
    std::int64_t const at = found.list / heads;
    std::int64_t const head = found.list % heads;
    missed_chunk const missed = call.step.missed(at, head, found.place);
    std::int64_t const sequence = call.step.named(at);
    std::int64_t const row = call.memory.sequences[sequence].first + missed.chunk;
    return {reinterpret_cast<record_words const*>(&call.memory.values(row, head, 0)),
            &call.memory.slot_values(sequence, head, missed.slot, 0, 0)};
  }

  /// All that a lane moves of a record of up to 2 KB is asked for before any of it is written.
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
