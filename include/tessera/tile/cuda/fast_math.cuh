// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Functions of floats in one instruction.
#pragma once

namespace tessera {
inline namespace v0 {

/// 2^value within 2 units in the last place (PTX ISA, ex2.approx); results below 2^-126 are 0.
__device__ __forceinline__ float fast_exp2(float value) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

/// The larger, or NaN if one of them is.
__device__ __forceinline__ float maximum_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

}  // namespace v0
}  // namespace tessera
