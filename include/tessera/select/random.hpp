// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Selects chunks at random, independently for each head and each position of a query, but the same chunks in each run:
/// the baseline that every selector has to beat.
///
///     tessera::random_selector<8> selector{.chunks = 256, .seed = 7};
#pragma once

#include <cstdint>

#include <tessera/concepts/chunk_selector.hpp>
#include <tessera/config.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/select/chunk_budget.hpp>
#include <tessera/select/query_group.hpp>

namespace tessera {
inline namespace v0 {

/// Keeps no data of chunks.
template <int Chunk>
struct random_selector {
  static_assert(Chunk > 0, "tessera: random_selector needs chunks of at least one key");

  using element_type = std::uint8_t;
  using group_type = group_max;
  static constexpr int chunk = Chunk;

  std::int64_t chunks = 256;  ///< chunks to take for each key head
  std::uint64_t seed = 0;     ///< other seeds take other chunks

  TESSERA_FN constexpr std::int64_t elements(std::int64_t) const { return 0; }
  TESSERA_FN constexpr std::int64_t pieces(std::int64_t) const { return 0; }
  template <class Keys>
  TESSERA_FN void reduce(Keys const&, std::int64_t, std::int64_t, element_type*) const {}
  /// A pseudorandom score between 0 and 1.
  template <class Query>
  TESSERA_FN float score(Query const&, element_type const*, std::int64_t, scored_chunk const& at) const {
    std::uint64_t const of_query =
        mix_bits(mix_bits(seed, static_cast<std::uint64_t>(at.head)), static_cast<std::uint64_t>(at.position));
    std::uint64_t const lot = mix_bits(of_query, static_cast<std::uint64_t>(at.chunk));
    return static_cast<float>(lot >> 40) * 0x1p-24F;
  }
  TESSERA_FN constexpr std::int64_t budget(std::int64_t candidates) const { return chunk_budget(chunks, candidates); }
};

static_assert(ChunkSelector<random_selector<8>>);

}  // namespace v0
}  // namespace tessera
