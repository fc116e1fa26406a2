// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The whole number nearest to a number of steps, within the codes that there are.
///
///     int const code = tessera::nearest_code(2.5F, -7, 7);         // 2: a tie goes to the even one
///     int const most = tessera::nearest_code(1e9F, -7, 7);         // 7
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Rounds to the nearest, ties to even, then saturates; gives 0 for NaN. `lowest <= 0 <= highest < 2^24`, and likewise
/// below. Does not depend on the rounding mode, and survives compilers that are told to reorder float arithmetic.
TESSERA_FN constexpr int nearest_code(float steps, int lowest, int highest) {
  if (steps != steps) {
    return 0;
  }
  if (steps <= static_cast<float>(lowest)) {
    return lowest;
  }
  if (steps >= static_cast<float>(highest)) {
    return highest;
  }
  int const toward_zero = static_cast<int>(steps);
  float const rest = steps - static_cast<float>(toward_zero);  // exact
  bool const odd = (toward_zero & 1) != 0;
  if (rest > 0.5F || (rest == 0.5F && odd)) {
    return toward_zero + 1;
  }
  if (rest < -0.5F || (rest == -0.5F && odd)) {
    return toward_zero - 1;
  }
  return toward_zero;
}

}  // namespace v0
}  // namespace tessera
