// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Selects chunks of keys by the box around them: a chunk's landmark is the smallest and the largest value of each
/// channel, and its score the highest that a key in that box could have (Quest, arXiv 2406.10774).
///
///     tessera::quest_selector<16> selector{.chunks = 128};
///     auto box = selector.summary().identity();                     // one channel of one chunk of 16 keys
///     for (float key : chunk) { selector.summary().push(box, key); }
///     bound += selector.score(query, selector.landmark(box));       // summed over the channels
#pragma once

#include <cstdint>

#include <tessera/concepts/selector.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/select/chunk_budget.hpp>
#include <tessera/select/query_group.hpp>

namespace tessera {
inline namespace v0 {

/// Parameters as in landmark_selector. No key of a chunk scores above its chunk. The box of no keys is a point at zero.
template <int Chunk, class QueryGroup = group_max>
struct quest_selector {
  static_assert(Chunk > 0, "tessera: quest_selector needs chunks of at least one key");

  using landmark_type = interval<float>;
  using group_type = QueryGroup;
  static constexpr int chunk = Chunk;

  std::int64_t chunks = 256;  ///< chunks to take for each key head

  TESSERA_FN constexpr minimum_maximum_reducer<float> summary() const { return {}; }
  TESSERA_FN constexpr landmark_type landmark(interval<float> const& box) const {
    return box.minimum <= box.maximum ? box : landmark_type{0.0F, 0.0F};
  }
  TESSERA_FN constexpr float score(float query, landmark_type const& box) const {
    return max(query * box.minimum, query * box.maximum);
  }
  TESSERA_FN constexpr std::int64_t budget(std::int64_t candidates) const { return chunk_budget(chunks, candidates); }
};

static_assert(Selector<quest_selector<16>>);

}  // namespace v0
}  // namespace tessera
