// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The largest and the smallest of three integers by one instruction (sm_90).
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// The largest of three integers.
__device__ __forceinline__ std::int32_t largest_of_three(std::int32_t a, std::int32_t b, std::int32_t c) {
  return __vimax3_s32(a, b, c);
}
/// The smallest of three integers.
__device__ __forceinline__ std::int32_t smallest_of_three(std::int32_t a, std::int32_t b, std::int32_t c) {
  return __vimin3_s32(a, b, c);
}

}  // namespace v0
}  // namespace tessera
