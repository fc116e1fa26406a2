// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `value_slot`: where a token lies among the codes of a channel of values.
///
///     codes(channel, value_slot(token)) = code;      // every 16 tokens have 16 slots of their own
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

/// Where token s of every 16 lies. Lanes that hold weights of tokens 2t, 2t + 1, 8 + 2t and 8 + 2t + 1 as sums of one
/// tensor core product then hold them as four neighbours for the next product, and read the codes of these tokens'
/// values as one word.
template <detail::Integer I>
[[nodiscard]] TESSERA_FN constexpr I value_slot(I token) {
  I const s = token % 16;
  return token - s + s / 8 * 2 + s / 2 % 4 * 4 + s % 2;
}

}  // namespace v0
}  // namespace tessera
