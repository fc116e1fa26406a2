// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Exponentials, logarithms and reciprocals by one instruction each, where core/math.hpp's would take several to keep
/// denormal numbers: these flush them to zero. Within 2 units in the last place; the logarithm within 2^-22 near 1.
/// NaN gives NaN.
#pragma once

namespace tessera {
inline namespace v0 {

__device__ __forceinline__ float fast_exp2(float value) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

/// Minus infinity at zero, NaN below.
__device__ __forceinline__ float fast_log2(float value) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

__device__ __forceinline__ float fast_reciprocal(float value) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

/// 2^(factor value + addend) without the special function unit, which gives a scheduler a warp's worth in 8 cycles:
/// within 1.8e-3 of itself, for results from 2^-119 (less becomes that) to 2^9. It takes factor / 128 and (addend +
/// 119) / 128, so that an instruction can clamp: 7 instructions in all. NaN gives 2^-119.
__device__ __forceinline__ float polynomial_exp2(float value, float factor, float addend) {
  constexpr float magic = 12582912.0F;       // 1.5 * 2^23: adding it rounds to an integer, in the lower bits
  constexpr float scale = 1.504632769e-36F;  // 2^-119
  const float exponent = __saturatef(__fmaf_rn(value, factor, addend));
  const float rounded = __fmaf_rn(exponent, 128.0F, magic);
  const float rest = __fmaf_rn(exponent, 128.0F, -(rounded - magic));  // in [-1/2, 1/2]
  // The quadratic whose largest relative error is least.
  const float linear = __fmaf_rn(0.238428936F * scale, rest, 0.703448006F * scale);
  const float power = __fmaf_rn(linear, rest, 1.00044314F * scale);
  return __int_as_float((__float_as_int(rounded) << 23) + __float_as_int(power));
}

}  // namespace v0
}  // namespace tessera
