// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs by which an offloaded cache keeps keys as they are, rotated to their positions, in records like those
/// of exact values (program/offloaded_cache/value_record.hpp):
///
///     put_keys            keys of a prompt's whole chunks
///     archive_keys        keys of the chunk that leaves the ring in a step
///     note_exact_keys     that nothing of the keys is lost
///
/// fetch_values (program/offloaded_cache/rebuild_keys.hpp) brings them back to slots.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/offloaded_cache/summarize_chunk.hpp>
#include <tessera/program/offloaded_cache/value_record.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/project/rotary.hpp>
#include <tessera/quantize/value_codec.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// Writes rotated keys to the store. A group for each whole chunk of each head.
template <Scalar T>
struct put_keys {
  using record = value_record<exact_values, T>;
  static constexpr int lanes = 128;
  struct scratch_type {};

  view<T const, 3> keys;  ///< heads x tokens x channels, before their rotation
  rotary_embedding rotary;
  std::int64_t first;        ///< position of the first token: a multiple of the chunk
  std::int64_t chunk;        ///< tokens of a chunk
  std::int64_t row;          ///< row of the first chunk
  std::int64_t chunks;       ///< whole chunks of the piece
  view<std::byte, 3> store;  ///< rows x key heads x bytes of a record

  TESSERA_FN constexpr std::int64_t groups() const { return chunks * keys.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const at = which / keys.extent(0);
    std::int64_t const head = which % keys.extent(0);
    part const source{rotary, {keys[head]}, first, at * chunk};
    for (int lane : group) {
      for (std::int64_t piece = lane; piece < record::pieces(chunk, keys.extent(2)); piece += lanes) {
        record::put(source, piece, chunk, keys.extent(2), &store(row + at, head, 0));
      }
    }
  }

 private:
  struct part {
    rotary_embedding const& rotary;
    plain_keys<T> keys;
    std::int64_t position;  ///< position of the piece's first token
    std::int64_t token;     ///< the chunk's first token in the piece
    TESSERA_FN T operator()(std::int64_t inside, std::int64_t channel) const {
      return rotated<T>(rotary, position + token + inside, channel, keys.at(token + inside));
    }
  };
};

/// Writes the rotated keys of the chunk that leaves the ring to the store, and that nothing of them is lost. A group
/// for each key head of each step.
template <class T, class E>
struct archive_keys {
  using record = value_record<exact_values, T>;
  static constexpr int lanes = 128;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  view<std::byte, 3> store;  ///< rows x key heads x bytes of a record

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * extents.key_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const at = which / extents.key_heads;
    std::int64_t const head = which % extents.key_heads;
    std::int64_t const sequence = step.sequence(extents, memory.sequences, at);
    bool const archives = sequence >= 0 && memory.sequences[sequence].archives(extents);
    for (int lane : group) {
      if (head == 0 && is_first(lane)) {
        step.residuals[at] = archives ? 0.0F : -1.0F;
      }
    }
    if (!archives) {
      return;
    }
    cached_sequence const known = memory.sequences[sequence];
    part const source{memory.ring_keys[sequence][head], known.chunks * extents.chunk, extents.ring};
    std::byte* const to = &store(known.first + known.chunks, head, 0);
    for (int lane : group) {
      for (std::int64_t piece = lane; piece < record::pieces(extents.chunk, extents.channels); piece += lanes) {
        record::put(source, piece, extents.chunk, extents.channels, to);
      }
    }
  }

 private:
  struct part {
    view<T const, 2> ring;
    std::int64_t first;
    std::int64_t length;
    TESSERA_FN T operator()(std::int64_t token, std::int64_t channel) const {
      return ring((first + token) % length, channel);
    }
  };
};

/// Writes measures of keys of which nothing is lost. One group.
struct note_exact_keys {
  static constexpr int lanes = 32;
  struct scratch_type {};

  array_view<subspace_measures> measures;  ///< one, for finish_prompt

  TESSERA_FN constexpr std::int64_t groups() const { return 1; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    for (int lane : group) {
      if (is_first(lane)) {
        measures[0] = {0.0, 0.0, 0.0F, 1.0F};
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
