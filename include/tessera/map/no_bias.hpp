// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `no_bias`: the bias of attention's scores that adds nothing.
///
///     struct later_is_better {                               // a user's own: each head prefers later keys
///       array_view<float const> slopes;
///       TESSERA_FN float operator()(std::int64_t, std::int64_t head, std::int32_t, std::int32_t key) const {
///         return slopes[head] * static_cast<float>(key);
///       }
///     };
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The bias that adds nothing. A user's own is a trivially copyable function object of sequence, head, query and key,
/// whose result is added to the score (natural, scaled); minus infinity masks the score. It may also be called for
/// queries and keys of the sequence whose score a mask hides. Where it calculates with numbers of queries and keys, it
/// should take them as std::int32_t, since arithmetic in 64 bits and conversions to float take GPUs long. linear_bias
/// and dense_bias are faster than functions that do the same.
struct no_bias {
  /// Returns 0: nothing is added.
  TESSERA_FN float operator()(std::int64_t, std::int64_t, std::int64_t, std::int64_t) const { return 0.0F; }
};

}  // namespace v0
}  // namespace tessera
