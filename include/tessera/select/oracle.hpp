// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Selects the chunks that take most of the attention, by looking at all keys: the best that any selector of whole
/// chunks could do, for comparisons. It reads all the keys that a cache should avoid reading.
///
///     tessera::oracle_selector<8> selector{.chunks = 256};
#pragma once

#include <cstdint>

#include <tessera/concepts/chunk_selector.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/select/chunk_budget.hpp>
#include <tessera/select/query_group.hpp>

namespace tessera {
inline namespace v0 {

/// Keeps all keys as bfloat16.
template <int Chunk, class QueryGroup = group_max>
struct oracle_selector {
  static_assert(Chunk > 0, "tessera: oracle_selector needs chunks of at least one key");

  using element_type = bfloat16;
  using group_type = QueryGroup;
  static constexpr int chunk = Chunk;

  std::int64_t chunks = 256;  ///< chunks to take for each key head

  TESSERA_FN constexpr std::int64_t elements(std::int64_t channels) const { return Chunk * channels; }
  TESSERA_FN constexpr std::int64_t pieces(std::int64_t channels) const { return channels; }
  template <class Keys>
  TESSERA_FN void reduce(Keys const& keys, std::int64_t piece, std::int64_t channels, element_type* kept) const {
    for (int token = 0; token < Chunk; ++token) {
      kept[token * channels + piece] = store<bfloat16>(keys(token, piece));
    }
  }
  /// The logarithm of the sum of exp(score) over the chunk's keys.
  template <class Query>
  TESSERA_FN float score(Query const& query, element_type const* kept, std::int64_t channels,
                         scored_chunk const&) const {
    lse_reducer<float> const reducer;
    auto all = reducer.identity();
    for (int token = 0; token < Chunk; ++token) {
      float sum = 0.0F;
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        sum = multiply_add(query(channel), load(kept[token * channels + channel]), sum);
      }
      reducer.push(all, sum);
    }
    return reducer.value(all);
  }
  TESSERA_FN constexpr std::int64_t budget(std::int64_t candidates) const { return chunk_budget(chunks, candidates); }
};

static_assert(ChunkSelector<oracle_selector<8>>);

}  // namespace v0
}  // namespace tessera
