// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Selects chunks of keys by their mean: a chunk's landmark is the mean key, and its score the dot product of the query
/// with that mean (ShadowKV, arXiv 2410.21465).
///
///     tessera::landmark_selector<8> selector{.chunks = 256};
///     auto summary = selector.summary().identity();                 // one channel of one chunk of 8 keys
///     for (float key : chunk) { selector.summary().push(summary, key); }
///     score += selector.score(query, selector.landmark(summary));   // summed over the channels
///     tessera::top_k(scores, candidates, selector.budget(candidates), taken);
#pragma once

#include <cstdint>

#include <tessera/concepts/selector.hpp>
#include <tessera/config.hpp>
#include <tessera/reduce/mean.hpp>
#include <tessera/select/chunk_budget.hpp>
#include <tessera/select/query_group.hpp>

namespace tessera {
inline namespace v0 {

/// `Chunk` neighbouring keys share a landmark; the last chunk may be shorter. At most `chunks` chunks are taken.
/// QueryGroup: how the query heads that share a key head agree.
template <int Chunk, class QueryGroup = group_max>
struct landmark_selector {
  static_assert(Chunk > 0, "tessera: landmark_selector needs chunks of at least one key");

  using landmark_type = float;
  using group_type = QueryGroup;
  static constexpr int chunk = Chunk;

  std::int64_t chunks = 256;  ///< chunks to take for each key head

  TESSERA_FN constexpr mean_reducer<float> summary() const { return {}; }
  TESSERA_FN constexpr landmark_type landmark(counted_sum<float> const& summarised) const {
    return summary().value(summarised);
  }
  TESSERA_FN constexpr float score(float query, landmark_type landmark) const { return query * landmark; }
  TESSERA_FN constexpr std::int64_t budget(std::int64_t candidates) const { return chunk_budget(chunks, candidates); }
};

static_assert(Selector<landmark_selector<8>>);

}  // namespace v0
}  // namespace tessera
