// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs that write a prompt, or a part of one, to an offloaded cache
/// (program/offloaded_cache/cache_memory.hpp):
///
///     open_sequence       forgets what was there
///     summarize_prompt    landmarks and least cosines of whole chunks
///     put_values          values of whole chunks to the store
///     choose_outliers     which chunks are exact
///     copy_exact          their keys and values
///     fill_ring           the latest tokens
///     finish_prompt       how many tokens there are
///
/// All of them take keys before their rotation; `first` is the position of the first token.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/offloaded_cache/summarize_chunk.hpp>
#include <tessera/program/offloaded_cache/value_record.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/top_k.hpp>

namespace tessera {
inline namespace v0 {

/// Makes a sequence empty. A group for each key head.
template <class T, class E>
struct open_sequence {
  static constexpr int lanes = 256;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  std::int64_t sequence;  ///< number of the sequence in the batch
  std::int32_t first;     ///< its first row of the memory that all sequences share
  std::int32_t capacity;  ///< chunks that it has room for

  TESSERA_FN constexpr std::int64_t groups() const { return extents.key_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      for (std::int64_t chunk = lane; chunk < capacity; chunk += lanes) {
        memory.chunk_slots(first + chunk, which) = static_cast<std::int16_t>(chunk_slot::archived);
      }
      for (std::int64_t slot = lane; slot < extents.slots; slot += lanes) {
        memory.slot_ids(sequence, which, slot) = -1;
      }
      for (std::int64_t index = lane; index < extents.exact(); index += lanes) {
        memory.exact_ids(sequence, which, index) = -1;
      }
      if (is_first(lane)) {
        memory.hands(sequence, which) = 0;
        memory.usage(sequence, which) = {0, 0};
        if (which == 0) {
          memory.sequences[sequence] = {first, capacity, 0, 0, 0.0, 0.0F, 0, 0.0F, 0, 1.0F};
        }
      }
    }
  }
};

/// Writes landmarks and least cosines. A group for each whole chunk of each head.
template <class T, ChunkSelector S>
struct summarize_prompt {
  static constexpr int lanes = 32;
  using scratch_type = staged_keys<T>;
  using element_type = typename chunk_landmarks<S>::element_type;

  view<T const, 3> keys;  ///< heads x tokens x channels
  rotary_embedding rotary;
  S selector;
  std::int64_t first;               ///< position of the first token: a multiple of the chunk
  std::int64_t row;                 ///< row of the chunk at `first`
  std::int64_t chunks;              ///< whole chunks of the piece
  view<element_type, 3> landmarks;  ///< the cache's landmarks
  view<float, 2> cosines;           ///< least cosines, heads x chunks of the prompt

  TESSERA_FN constexpr std::int64_t groups() const { return chunks * keys.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const chunk = which / keys.extent(0);
    std::int64_t const head = which % keys.extent(0);
    std::int64_t const channels = keys.extent(2);
    plain_keys<T> const source{keys[head]};
    for (int lane : group) {
      for (std::int64_t at = lane; at < S::chunk * channels; at += lanes) {
        std::int64_t const token = chunk * S::chunk + at / channels;
        scratch.keys[at] = rotated<T>(rotary, first + token, at % channels, source.at(token));
      }
    }
    float const least = summarize_chunk(group, selector, scratch, channels, &landmarks(row + chunk, head, 0));
    for (int lane : group) {
      if (is_first(lane)) {
        cosines(head, first / S::chunk + chunk) = least;
      }
    }
  }
};

/// Writes values to the store. A group for each whole chunk of each head.
template <class T, class Codec>
struct put_values {
  using record = value_record<Codec, T>;
  static constexpr int lanes = 128;
  struct scratch_type {};

  view<T const, 3> values;   ///< heads x tokens x channels
  std::int64_t chunk;        ///< tokens of a chunk
  std::int64_t row;          ///< row of the first chunk
  std::int64_t chunks;       ///< whole chunks of the piece
  view<std::byte, 3> store;  ///< the cache's values

  TESSERA_FN constexpr std::int64_t groups() const { return chunks * values.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const at = which / values.extent(0);
    std::int64_t const head = which % values.extent(0);
    part const source{values[head].slice(0, at * chunk, chunk)};
    for (int lane : group) {
      for (std::int64_t piece = lane; piece < record::pieces(chunk, values.extent(2)); piece += lanes) {
        record::put(source, piece, chunk, values.extent(2), &store(row + at, head, 0));
      }
    }
  }

 private:
  struct part {
    view<T const, 2> rows;
    TESSERA_FN T operator()(std::int64_t token, std::int64_t channel) const { return rows(token, channel); }
  };
};

/// Chooses the chunks with the least cosines, in order; of equal ones the earlier. A group for each key head.
template <class T, class E>
struct choose_outliers {
  static constexpr int lanes = 256;
  using scratch_type = top_k_scratch;

  offload_extents extents;
  offloaded_memory<T, E> memory;
  std::int64_t sequence;         ///< number of the sequence in the batch
  std::int64_t row;              ///< row of the sequence's first chunk
  std::int64_t chunks;           ///< whole chunks of the prompt, without those of the ring
  view<float const, 2> cosines;  ///< heads x chunks

  TESSERA_FN constexpr std::int64_t groups() const { return extents.key_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const taken =
        top_k(group, worst{cosines[which]}, chunks, extents.outliers, scratch, keep{*this, which});
    group.sync();
    for (int lane : group) {
      for (std::int64_t index = taken + lane; index < extents.exact(); index += lanes) {
        memory.exact_ids(sequence, which, index) = -1;
      }
    }
  }

 private:
  struct worst {
    view<float const, 1> cosines;
    TESSERA_FN std::uint32_t operator()(std::int64_t chunk) const { return ordered_key(-cosines[chunk]); }
  };
  struct keep {
    choose_outliers const& program;
    std::int64_t head;
    TESSERA_FN void operator()(std::int64_t rank, std::int64_t chunk) const {
      program.memory.exact_ids(program.sequence, head, rank) = static_cast<std::int32_t>(chunk);
      program.memory.exact_measures(program.sequence, head, rank) = program.cosines(head, chunk);
      program.memory.chunk_slots(program.row + chunk, head) = static_cast<std::int16_t>(chunk_slot::exact);
    }
  };
};

/// Copies keys and values of the outliers. A group for each outlier of each head.
template <class T, class E>
struct copy_exact {
  static constexpr int lanes = 128;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  rotary_embedding rotary;
  std::int64_t sequence;    ///< number of the sequence in the batch
  view<T const, 3> keys;    ///< heads x tokens x channels, from the first token of the prompt
  view<T const, 3> values;  ///< heads x tokens x channels, from the first token of the prompt

  TESSERA_FN constexpr std::int64_t groups() const { return extents.key_heads * extents.outliers; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which / extents.outliers;
    std::int64_t const index = which % extents.outliers;
    std::int64_t const chunk = memory.exact_ids(sequence, head, index);
    plain_keys<T> const source{keys[head]};
    for (int lane : group) {
      for (std::int64_t at = lane; chunk >= 0 && at < extents.chunk * extents.channels; at += lanes) {
        std::int64_t const token = at / extents.channels;
        std::int64_t const channel = at % extents.channels;
        std::int64_t const from = chunk * extents.chunk + token;
        memory.exact_keys(sequence, head, index, token, channel) = rotated<T>(rotary, from, channel, source.at(from));
        memory.exact_values(sequence, head, index, token, channel) = values(head, from, channel);
      }
    }
  }
};

/// Fills the ring with the latest tokens. A group for each token of the ring of each head.
template <class T, class E>
struct fill_ring {
  static constexpr int lanes = 64;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  rotary_embedding rotary;
  std::int64_t sequence;    ///< number of the sequence in the batch
  view<T const, 3> keys;    ///< heads x tokens x channels, from the first token of the prompt
  view<T const, 3> values;  ///< heads x tokens x channels, from the first token of the prompt
  std::int64_t oldest;      ///< the first token that goes to the ring

  TESSERA_FN constexpr std::int64_t groups() const { return (keys.extent(1) - oldest) * extents.key_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const token = oldest + which / extents.key_heads;
    std::int64_t const head = which % extents.key_heads;
    std::int64_t const at = token % extents.ring;
    plain_keys<T> const source{keys[head]};
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < extents.channels; channel += lanes) {
        memory.ring_keys(sequence, head, at, channel) = rotated<T>(rotary, token, channel, source.at(token));
        memory.ring_values(sequence, head, at, channel) = values(head, token, channel);
        memory.ring_sources(sequence, at, head * extents.channels + channel) = keys(head, token, channel);
      }
    }
  }
};

/// Writes the counts and measures of a prompt. One group.
struct finish_prompt {
  static constexpr int lanes = 32;
  struct scratch_type {};

  array_view<cached_sequence> sequences;         ///< lengths of each sequence
  std::int64_t sequence;                         ///< number of the sequence in the batch
  std::int32_t tokens;                           ///< tokens of the prompt
  std::int32_t chunks;                           ///< archived chunks
  array_view<subspace_measures const> measures;  ///< measures of the search for directions

  TESSERA_FN constexpr std::int64_t groups() const { return 1; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    for (int lane : group) {
      if (is_first(lane)) {
        cached_sequence& known = sequences[sequence];
        subspace_measures const found = measures[0];
        known.tokens = tokens;
        known.chunks = chunks;
        known.fitted = tokens;
        auto const scale = static_cast<double>(found.scale);
        known.energy = tokens > 0 ? found.trace / (scale * scale * tokens) : 0.0;
        known.scale = found.scale;
        known.residual = found.trace > 0.0 ? static_cast<float>(max(1.0 - found.held / found.trace, 0.0)) : 0.0F;
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
