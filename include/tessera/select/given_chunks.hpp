// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Selects the chunks that the caller gives for each key head of each step, for selections that come from elsewhere,
/// such as an index, another layer or a test.
///
///     using method = tessera::offloaded_cache<exact_keys, given_chunks<16>, keep_outliers<0>>;
///     method::decode(exec, side, cache, {queries, keys, values, {}, {.chunks = numbers}}, outputs, space);
///
/// offload_tokens::given (algorithm/offloaded_cache/offloaded_cache_types.hpp) holds the chunk numbers, and lists the
/// faults that they are checked for.
#pragma once

#include <cstdint>

#include <tessera/concepts/chunk_selector.hpp>
#include <tessera/config.hpp>
#include <tessera/select/chunk_budget.hpp>
#include <tessera/select/query_group.hpp>

namespace tessera {
inline namespace v0 {

/// Keeps no data of chunks, and scores none.
template <int Chunk>
struct given_chunks {
  static_assert(Chunk > 0, "tessera: given_chunks needs chunks of at least one key");

  using element_type = std::uint8_t;
  using group_type = group_max;
  static constexpr int chunk = Chunk;
  static constexpr bool is_given = true;  ///< the caller gives chunks

  std::int64_t chunks = 256;  ///< the most chunks that are given for a key head

  TESSERA_FN constexpr std::int64_t elements(std::int64_t) const { return 0; }
  TESSERA_FN constexpr std::int64_t pieces(std::int64_t) const { return 0; }
  template <class Keys>
  TESSERA_FN void reduce(Keys const&, std::int64_t, std::int64_t, element_type*) const {}
  /// All chunks are alike.
  template <class Query>
  TESSERA_FN float score(Query const&, element_type const*, std::int64_t, scored_chunk const&) const {
    return 0.0F;
  }
  TESSERA_FN constexpr std::int64_t budget(std::int64_t candidates) const { return chunk_budget(chunks, candidates); }
};

static_assert(ChunkSelector<given_chunks<8>>);

/// Whether the caller of a step gives the chunks of a ChunkSelector, as for given_chunks.
template <ChunkSelector S>
inline constexpr bool takes_given_chunks = requires {
  requires S::is_given;
};

}  // namespace v0
}  // namespace tessera
