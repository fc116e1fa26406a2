// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `append_tokens`: the first program of a step of an offloaded cache. It rotates queries and the new key to their
/// position, and writes the new token into the ring. finish_steps (program/offloaded_cache/archive_chunks.hpp) counts
/// the token.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/offloaded_cache/summarize_chunk.hpp>
#include <tessera/project/rotary.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// Appends the tokens of a step. A group for each head of each step, first the key heads and then the query heads.
/// Steps with a step_fault are reported, and their sequences are left as they are.
template <class T, class E>
struct append_tokens {
  static constexpr int lanes = 128;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  rotary_embedding rotary;
  view<T const, 3> queries;  ///< steps x query heads x channels, before their rotation
  view<T const, 3> keys;     ///< steps x key heads x channels, before their rotation
  view<T const, 3> values;   ///< steps x key heads x channels
  status_word* status;

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * (extents.key_heads + extents.query_heads); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const heads = extents.key_heads + extents.query_heads;
    std::int64_t const at = which / heads;
    std::int64_t const head = which - at * heads;
    step_fault const fault = step.fault(extents, memory.sequences, at);
    std::int64_t const sequence = fault == step_fault::none ? step.named(at) : -1;
    if (head == 0) {
      admit(group, at, sequence, fault);
    }
    if (sequence < 0) {
      return;
    }
    if (head < extents.key_heads) {
      append(group, at, head, sequence);
    } else {
      turn_query(group, at, head - extents.key_heads, sequence);
    }
  }

 private:
  template <Group G>
  TESSERA_FN void append(G const& group, std::int64_t at, std::int64_t head, std::int64_t sequence) const {
    std::int64_t const position = memory.sequences[sequence].tokens;
    std::int64_t const index = position % extents.ring;
    plain_keys<T> const key{keys[at]};
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < extents.channels; channel += lanes) {
        T const value = values(at, head, channel);
        T const source = keys(at, head, channel);
        T const turned = rotated<T>(rotary, position, channel, key.at(head));
        memory.ring_keys(sequence, head, index, channel) = turned;
        memory.ring_values(sequence, head, index, channel) = value;
        memory.ring_sources(sequence, index, head * extents.channels + channel) = source;
      }
    }
  }

  template <Group G>
  TESSERA_FN void turn_query(G const& group, std::int64_t at, std::int64_t head, std::int64_t sequence) const {
    std::int64_t const position = memory.sequences[sequence].tokens;
    plain_keys<T> const query{queries[at]};
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < extents.channels; channel += lanes) {
        step.queries(at, head, channel) = rotated<T>(rotary, position, channel, query.at(head));
      }
    }
  }

  /// Writes the sequence of the step for later programs, or -1 if there is a fault, and reports the fault. Where a
  /// sequence was never begun, it makes the ring look full, by which later programs know. Groups of other heads find
  /// the same fault before and after, and do not read what is raised: only `first`, `capacity` or `chunks` can be wrong
  /// where the ring has room.
  template <Group G>
  TESSERA_FN void admit(G const& group, std::int64_t at, std::int64_t sequence, step_fault fault) const {
    for (int lane : group) {
      if (is_first(lane)) {
        if (step.sequences.data != nullptr) {
          step.admitted[at] = static_cast<std::int32_t>(sequence);
        }
        if (fault == step_fault::never_begun && memory.sequences[step.named(at)].has_room(extents)) {
          cached_sequence& known = memory.sequences[step.named(at)];
          known.tokens += static_cast<std::int32_t>(extents.ring - known.in_ring(extents.chunk));
        }
        if (fault != step_fault::none) {
          group.report(status, code_of(fault), at, detail_of(fault, at));
        }
      }
    }
  }

  TESSERA_FN static constexpr status_code code_of(step_fault fault) {
    switch (fault) {
      case step_fault::repeated:
        return status_code::repeated_sequence;
      case step_fault::full:
        return status_code::full_sequence;
      case step_fault::never_begun:
        return status_code::unknown_sequence;
      default:
        return status_code::bad_sequence;
    }
  }
  /// The numbers of the fault's sentence.
  TESSERA_FN constexpr status_detail detail_of(step_fault fault, std::int64_t at) const {
    std::int64_t const found = step.named(at);
    if (fault == step_fault::repeated) {
      return {found, step.twin(at)};
    }
    if (fault == step_fault::full) {
      cached_sequence const& known = memory.sequences[found];
      return {known.tokens, known.capacity * extents.chunk + extents.ring};
    }
    return {found, extents.batch};
  }
};

}  // namespace v0
}  // namespace tessera
