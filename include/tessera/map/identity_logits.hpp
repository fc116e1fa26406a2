// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `identity_logits`: the map that does not change logits (concepts/logit_map.hpp), which losses have unless they are
/// told another; `leaves_logits` says whether a map is this one.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The map that does not change logits.
struct identity_logits {
  /// The logit itself.
  TESSERA_FN constexpr float operator()(float logit, std::int64_t, std::int64_t) const { return logit; }
  /// The derivative of the identity.
  TESSERA_FN constexpr float slope(float, std::int64_t, std::int64_t) const { return 1.0F; }
  /// The largest slope.
  TESSERA_FN constexpr float steepest() const { return 1.0F; }
};

/// Whether a map does not change logits, so that programs need not call it.
template <LogitMap M>
inline constexpr bool leaves_logits = std::is_same_v<M, identity_logits>;

}  // namespace v0
}  // namespace tessera
