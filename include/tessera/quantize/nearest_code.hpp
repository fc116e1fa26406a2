// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The integer code nearest to a number of steps, saturated to the range of codes.
///
///     int const code = tessera::nearest_code(2.5F, -7, 7);         // 2: a tie goes to the even one
///     int const most = tessera::nearest_code(1e9F, -7, 7);         // 7
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

/// Rounds to the nearest integer, ties to even, and saturates; gives 0 for NaN. `lowest <= 0 <= highest`, and both are
/// exact in float.
TESSERA_FN constexpr int nearest_code(float steps, int lowest, int highest) {
  if (is_nan(steps)) {
    return 0;
  }
  float const inside = clamp(steps, static_cast<float>(lowest), static_cast<float>(highest));
  return static_cast<int>(round_to_even(inside));
}

}  // namespace v0
}  // namespace tessera
