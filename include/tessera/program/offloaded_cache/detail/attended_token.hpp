// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attended_by`: the token of an offloaded cache that a lane has in a split of attention
/// (program/offloaded_cache/attend_chunks.hpp).
///
/// The tokens of a split depend only on the extents and the selection, not on what was in slots before, so that results
/// do not depend on it either. Tokens that are on the device from the start come first, and wait for no transfer.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>

namespace tessera {
inline namespace v0 {

/// The rotated key and the value of a token.
template <class T>
struct attended_token {
  T const* key;    ///< null: there is no token
  T const* value;  ///< null: there is no token
};

/// The step and key head of a split.
struct attending_head {
  std::int64_t at;        ///< the number of the step
  std::int64_t sequence;  ///< number of the sequence in the batch
  std::int64_t head;      ///< the key head
};

/// The token at `index` among those of the ring, which are from the first that is not archived to the new one.
template <class T, class E>
TESSERA_FN attended_token<T> attended_in_ring(offload_extents const& n, offloaded_memory<T, E> const& memory,
                                              attending_head const& by, std::int32_t index) {
  cached_sequence const known = memory.sequences[by.sequence];
  auto const ring = static_cast<std::int32_t>(n.ring);
  std::int32_t const age = (known.tokens - index + ring) % ring;
  if (age > known.in_ring(n.chunk)) {
    return {nullptr, nullptr};
  }
  return {&memory.ring_keys(by.sequence, by.head, index, 0), &memory.ring_values(by.sequence, by.head, index, 0)};
}

/// The token of a lane of a split. It divides only numbers of 32 bits, which takes devices a fraction of the time.
template <class T, class E>
TESSERA_FN attended_token<T> attended_by(offload_extents const& n, offloaded_memory<T, E> const& memory,
                                         offload_step<T> const& step, attending_head const& by, std::int64_t split,
                                         std::int64_t lane) {
  auto const chunk = static_cast<std::int32_t>(n.chunk);
  std::int64_t const of_selected = split - resident_splits(n);
  if (of_selected >= 0) {
    auto const token = static_cast<std::int32_t>(of_selected * attended_tokens + lane);
    std::int32_t const rank = token / chunk;
    std::int32_t const inside = token - rank * chunk;
    std::int64_t const slot = rank < n.budget ? step.selected_slots(by.at, by.head, rank) : -1;
    return slot < 0 ? attended_token<T>{nullptr, nullptr}
                    : attended_token<T>{&memory.slot_keys(by.sequence, by.head, slot, inside, 0),
                                        &memory.slot_values(by.sequence, by.head, slot, inside, 0)};
  }
  auto const token = static_cast<std::int32_t>(split * attended_tokens + lane);
  auto const ring = static_cast<std::int32_t>(n.ring);
  if (token < ring) {
    return attended_in_ring(n, memory, by, token);
  }
  std::int32_t const index = (token - ring) / chunk;
  std::int32_t const inside = token - ring - index * chunk;
  if (index >= n.exact() || memory.exact_ids(by.sequence, by.head, index) < 0) {
    return {nullptr, nullptr};
  }
  return {&memory.exact_keys(by.sequence, by.head, index, inside, 0),
          &memory.exact_values(by.sequence, by.head, index, inside, 0)};
}

}  // namespace v0
}  // namespace tessera
