// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Selects the latest chunks, whatever the query is, as a sliding window does.
///
///     tessera::recent_selector<8> selector{.chunks = 256};
#pragma once

#include <cstdint>

#include <tessera/concepts/chunk_selector.hpp>
#include <tessera/config.hpp>
#include <tessera/select/chunk_budget.hpp>
#include <tessera/select/query_group.hpp>

namespace tessera {
inline namespace v0 {

/// Keeps no data of chunks.
template <int Chunk>
struct recent_selector {
  static_assert(Chunk > 0, "tessera: recent_selector needs chunks of at least one key");

  using element_type = std::uint8_t;
  using group_type = group_max;
  static constexpr int chunk = Chunk;

  std::int64_t chunks = 256;  ///< chunks to take for each key head

  TESSERA_FN constexpr std::int64_t elements(std::int64_t) const { return 0; }
  TESSERA_FN constexpr std::int64_t pieces(std::int64_t) const { return 0; }
  template <class Keys>
  TESSERA_FN void reduce(Keys const&, std::int64_t, std::int64_t, element_type*) const {}
  template <class Query>
  TESSERA_FN float score(Query const&, element_type const*, std::int64_t, scored_chunk const& at) const {
    return static_cast<float>(at.chunk);
  }
  TESSERA_FN constexpr std::int64_t budget(std::int64_t candidates) const { return chunk_budget(chunks, candidates); }
};

static_assert(ChunkSelector<recent_selector<8>>);

}  // namespace v0
}  // namespace tessera
