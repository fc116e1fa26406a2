// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attended_by`: which token of an offloaded cache a lane of a share of attention has
/// (program/offloaded_cache/attend_chunks.hpp).
///
/// Which tokens a share has depends on nothing but the extents and the selection: not on what lay in slots before, so
/// that results do not either. What is resident from the start comes first and needs nothing that is still on its way.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>

namespace tessera {
inline namespace v0 {

/// Channels of a key after its rotation, and of a value.
template <class T>
struct attended_token {
  T const* key;    ///< null: there is no token
  T const* value;  ///< null: there is no token
};

/// Whose share it is.
struct attending_head {
  std::int64_t at;        ///< the step
  std::int64_t sequence;  ///< of the batch
  std::int64_t head;      ///< key head
};

/// Tokens of the ring are those from the first that is not archived to the new one.
template <class T, class E>
TESSERA_FN attended_token<T> attended_in_ring(offload_extents const& n, offloaded_memory<T, E> const& memory,
                                              attending_head const& by, std::int32_t place) {
  cached_sequence const known = memory.sequences[by.sequence];
  auto const ring = static_cast<std::int32_t>(n.ring);
  std::int32_t const age = (known.tokens - place + ring) % ring;
  if (age > known.in_ring(n.chunk)) {
    return {nullptr, nullptr};
  }
  return {&memory.ring_keys(by.sequence, by.head, place, 0), &memory.ring_values(by.sequence, by.head, place, 0)};
}

/// Divides numbers of 32 bits only, which takes devices a fraction of the time.
template <class T, class E>
TESSERA_FN attended_token<T> attended_by(offload_extents const& n, offloaded_memory<T, E> const& memory,
                                         offload_step<T> const& step, attending_head const& by, std::int64_t share,
                                         std::int64_t lane) {
  auto const chunk = static_cast<std::int32_t>(n.chunk);
  std::int64_t const of_selected = share - resident_shares(n);
  if (of_selected >= 0) {
    auto const token = static_cast<std::int32_t>(of_selected * attended_tokens + lane);
    std::int32_t const rank = token / chunk;
    std::int32_t const inside = token - rank * chunk;
    std::int64_t const slot = rank < n.budget ? step.selected_slots(by.at, by.head, rank) : -1;
    return slot < 0 ? attended_token<T>{nullptr, nullptr}
                    : attended_token<T>{&memory.slot_keys(by.sequence, by.head, slot, inside, 0),
                                        &memory.slot_values(by.sequence, by.head, slot, inside, 0)};
  }
  auto const token = static_cast<std::int32_t>(share * attended_tokens + lane);
  auto const ring = static_cast<std::int32_t>(n.ring);
  if (token < ring) {
    return attended_in_ring(n, memory, by, token);
  }
  std::int32_t const place = (token - ring) / chunk;
  std::int32_t const inside = token - ring - place * chunk;
  if (place >= n.exact() || memory.exact_ids(by.sequence, by.head, place) < 0) {
    return {nullptr, nullptr};
  }
  return {&memory.exact_keys(by.sequence, by.head, place, inside, 0),
          &memory.exact_values(by.sequence, by.head, place, inside, 0)};
}

}  // namespace v0
}  // namespace tessera
