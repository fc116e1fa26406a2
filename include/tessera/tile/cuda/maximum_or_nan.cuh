// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `maximum_or_nan`, `minimum_or_nan`: one instruction where core/math.hpp's, which drop a NaN, and a test for it take
/// three.
#pragma once

namespace tessera {
inline namespace v0 {

/// The larger, or NaN if one of them is.
__device__ __forceinline__ float maximum_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ float minimum_or_nan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

}  // namespace v0
}  // namespace tessera
