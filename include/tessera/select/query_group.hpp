// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the query heads that share a key head agree on chunks: `group_max` takes a chunk for the head that wants it
/// most, `group_mean` for what it is worth to all of them.
///
///     auto state = group.identity();
///     for (each head) { group.push(state, score - log_sum_exp); }     // the logarithm of the chunk's share
///     float const rank = group.value(state, heads);
///
/// Shares are those of a softmax over all candidates, which makes heads comparable; taking them as logarithms keeps
/// small ones apart that would be equal as 16-bit probabilities.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

/// ShadowKV (arXiv 2410.21465): the largest share.
struct group_max {
  TESSERA_FN constexpr float identity() const { return -infinity; }
  /// Takes in the logarithm of a query head's share for a chunk.
  TESSERA_FN constexpr void push(float& state, float log_share) const { state = maximum(state, log_share); }
  /// The largest logarithm of a share.
  TESSERA_FN constexpr float value(float state, std::int64_t) const { return state; }
};

/// The mean share.
struct group_mean {
  TESSERA_FN constexpr float identity() const { return 0.0F; }
  /// Takes in the logarithm of a query head's share for a chunk.
  TESSERA_FN void push(float& state, float log_share) const { state += exp(log_share); }
  /// The mean share of the heads.
  TESSERA_FN float value(float state, std::int64_t heads) const { return state / static_cast<float>(heads); }
};

}  // namespace v0
}  // namespace tessera
