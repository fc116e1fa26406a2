// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `fetch_values` and `rebuild_keys`: fill the slots of missed chunks. They do not depend on each other, so that values
/// can cross the bus while keys are rebuilt.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/offloaded_cache/summarize_chunk.hpp>
#include <tessera/program/offloaded_cache/value_record.hpp>
#include <tessera/project/rotary.hpp>

namespace tessera {
inline namespace v0 {

/// The missed chunk that a group loads.
struct fetched_chunk {
  std::int64_t sequence;  ///< number of the sequence in the batch; -1: the group has no chunk
  std::int64_t head;      ///< the key head
  missed_chunk missed;    ///< the chunk and its slot
};

/// The missed chunk of group `which`. Groups count entries of the list first, then key heads, then steps.
template <class T, class E>
TESSERA_FN fetched_chunk chunk_of_group(offload_extents const& extents, offloaded_memory<T, E> const& memory,
                                        offload_step<T> const& step, std::int64_t which) {
  std::int64_t const index = which % extents.budget;
  std::int64_t const head = which / extents.budget % extents.key_heads;
  std::int64_t const at = which / extents.budget / extents.key_heads;
  if (index >= step.missed_counts(at, head)) {
    return {-1, head, {}};
  }
  return {step.sequence(extents, memory.sequences, at), head, step.missed(at, head, index)};
}

/// Fetches values of missed chunks to their slots. A group for each chunk that may be missed.
template <class T, class E, class Codec>
struct fetch_values {
  using value_type = T;
  using record = value_record<Codec, T>;
  static constexpr int lanes = 32;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  bool crosses_bus = true;  ///< whether values are in memory of the host

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * extents.key_heads * extents.budget; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    fetched_chunk const chunk = chunk_of_group(extents, memory, step, which);
    if (chunk.sequence < 0) {
      return;
    }
    std::int64_t const row = memory.sequences[chunk.sequence].first + chunk.missed.chunk;
    std::byte const* const from = &memory.values(row, chunk.head, 0);
    T* const to = &memory.slot_values(chunk.sequence, chunk.head, chunk.missed.slot, 0, 0);
    for (int lane : group) {
      for (std::int64_t at = lane; at < extents.chunk * extents.channels; at += lanes) {
        to[at] = record::get(from, extents.chunk, extents.channels, at / extents.channels, at % extents.channels);
      }
    }
  }
};

/// Rebuilds keys of missed chunks: key = rotation(coefficients * directions of the head), summed in fp32 from the first
/// direction to the last and rounded once, at the end. A group for each chunk that may be missed.
template <class T, class E>
struct rebuild_keys {
  using value_type = T;
  static constexpr int lanes = 128;
  struct scratch_type {
    float keys[most_chunk_elements];  ///< the keys before their rotation
  };

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  rotary_embedding rotary;

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * extents.key_heads * extents.budget; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    fetched_chunk const chunk = chunk_of_group(extents, memory, step, which);
    if (chunk.sequence < 0) {
      return;
    }
    std::int64_t const first = chunk.missed.chunk * extents.chunk;
    std::int64_t const row = memory.sequences[chunk.sequence].first * extents.chunk + first;
    auto const directions = memory.directions[chunk.sequence].slice(0, chunk.head * extents.channels, extents.channels);
    std::int64_t const elements = extents.chunk * extents.channels;
    group.sync();  // all lanes have read the scratch
    for (int lane : group) {
      for (std::int64_t at = lane; at < elements; at += lanes) {
        auto const coefficients = memory.coefficients[row + at / extents.channels];
        auto const direction = directions[at % extents.channels];
        float total = 0.0F;
        for (std::int64_t k = 0; k < extents.rank; ++k) {
          total =
              multiply_add(static_cast<float>(load(coefficients[k])), static_cast<float>(load(direction[k])), total);
        }
        scratch.keys[at] = total;
      }
    }
    group.sync();
    T* const to = &memory.slot_keys(chunk.sequence, chunk.head, chunk.missed.slot, 0, 0);
    for (int lane : group) {
      for (std::int64_t at = lane; at < elements; at += lanes) {
        std::int64_t const token = at / extents.channels;
        staged_row const row_of{scratch.keys + token * extents.channels};
        to[at] = rotated<T>(rotary, first + token, at % extents.channels, row_of);
      }
    }
  }

 private:
  struct staged_row {
    float const* values;
    TESSERA_FN float operator()(std::int64_t channel) const { return values[channel]; }
  };
};

}  // namespace v0
}  // namespace tessera
