// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the query heads that share a key head agree on chunks: `group_max` ranks a chunk by the head that gives it the
/// largest share, `group_mean` by its mean share.
///
///     auto state = group.identity();
///     for (int head = 0; head < heads; ++head) {
///       group.push(state, scores[head] - log_sum_exps[head]);        // the logarithm of the chunk's share
///     }
///     float const rank = group.value(state, heads);
///
/// A share is a chunk's part of a softmax over all candidates, which makes heads comparable. Logarithms keep small
/// shares apart that would be equal as 16-bit probabilities.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

/// Ranks chunks by their largest share, as in ShadowKV (arXiv 2410.21465).
struct group_max {
  TESSERA_FN constexpr float identity() const { return -infinity; }
  /// Takes in the logarithm of a query head's share for a chunk.
  TESSERA_FN constexpr void push(float& state, float log_share) const { state = maximum(state, log_share); }
  /// The largest logarithm of a share.
  TESSERA_FN constexpr float value(float state, std::int64_t) const { return state; }
};

/// Ranks chunks by their mean share.
struct group_mean {
  TESSERA_FN constexpr float identity() const { return 0.0F; }
  /// Takes in the logarithm of a query head's share for a chunk.
  TESSERA_FN void push(float& state, float log_share) const { state += exp(log_share); }
  /// The mean share of the heads.
  TESSERA_FN float value(float state, std::int64_t heads) const { return state / static_cast<float>(heads); }
};

}  // namespace v0
}  // namespace tessera
