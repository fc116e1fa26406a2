// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `chunk_lists`: which archived chunks of an offloaded cache each key head of each step reads, where the caller gives
/// them (select/given_chunks.hpp).
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// Lists of chunks, one for each key head of each step.
struct chunk_lists {
  /// Steps x key heads x entries: numbers of chunks in their sequence, in any order; -1: no chunk. Chunk c begins with
  /// the sequence's token c * chunk. It must be archived: chunk c is once the sequence has ring + c * chunk tokens, the
  /// new token not counted. Chunks that the cache keeps exactly are attended to in any case, and are no fault.
  view<std::int32_t const, 3> chunks = {};
  /// Steps x key heads: how many entries count, which are the first ones; null: all of them.
  view<std::int32_t const, 2> counts = {};

  /// The lists of some of the steps.
  [[nodiscard]] constexpr chunk_lists part(std::int64_t from, std::int64_t count) const {
    return {chunks.slice(0, from, count), counts.data == nullptr ? counts : counts.slice(0, from, count)};
  }
  /// How many entries of a list count.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t count(std::int64_t at, std::int64_t head) const {
    return counts.data == nullptr ? chunks.extent(2) : std::int64_t{counts(at, head)};
  }
};

}  // namespace v0
}  // namespace tessera
