// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Converts floats to stored values and back by the GPU's own instructions: the bits that store<T>() and load() give,
/// in a fraction of the time.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {

/// Two floats as stored values in one word, `low` in the lower half.
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high);

/// Two floats as bf16, rounded to the nearest, ties to even.
template <>
__device__ __forceinline__ std::uint32_t pack_pair<bfloat16>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
/// Two floats as fp16, rounded to the nearest, ties to even.
template <>
__device__ __forceinline__ std::uint32_t pack_pair<float16>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Two stored values as floats, the lower half first. They are the bits that load() gives, but for NaNs.
template <class T>
__device__ __forceinline__ float2 unpack_pair(std::uint32_t pair);

/// Two bf16 values as floats.
template <>
__device__ __forceinline__ float2 unpack_pair<bfloat16>(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U)};
}
/// Two fp16 values as floats.
template <>
__device__ __forceinline__ float2 unpack_pair<float16>(std::uint32_t pair) {
  float2 values;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
      : "=f"(values.x), "=f"(values.y)
      : "r"(pair));
  return values;
}

/// Four floats as four e4m3 bytes, `a` lowest; larger magnitudes saturate at 448.
__device__ __forceinline__ std::uint32_t pack_four_e4m3(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  return std::uint32_t{store<float8_e4m3>(a).bits} | std::uint32_t{store<float8_e4m3>(b).bits} << 8 |
         std::uint32_t{store<float8_e4m3>(c).bits} << 16 | std::uint32_t{store<float8_e4m3>(d).bits} << 24;
#else
  std::uint32_t four;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;"
      "  mov.b32 %0, {low, high}; }"
      : "=r"(four)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return four;
#endif
}

/// Four floats as four bytes, `a` lowest: the nearest integers, ties to even, limited to 0 to 255; 0 for NaN. On sm_90
/// this takes two instructions.
__device__ __forceinline__ std::uint32_t pack_four_integers(float a, float b, float c, float d) {
  std::uint32_t four;
  asm("{ .reg .s32 a, b, c, d; .reg .b32 high; cvt.rni.s32.f32 a, %1; cvt.rni.s32.f32 b, %2; cvt.rni.s32.f32 c, %3;"
      "  cvt.rni.s32.f32 d, %4; cvt.pack.sat.u8.s32.b32 high, d, c, 0; cvt.pack.sat.u8.s32.b32 %0, b, a, high; }"
      : "=r"(four)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return four;
}

/// Four e4m3 bytes as two pairs of fp16, the lowest byte first; exact.
__device__ __forceinline__ uint2 unpack_four_e4m3(std::uint32_t four) {
  uint2 pairs;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  std::uint32_t halves[4];
  for (int i = 0; i < 4; ++i) {
    float8_e4m3 const code{static_cast<std::uint8_t>(four >> 8 * i)};
    halves[i] = store<float16>(load(code)).bits;
  }
  pairs = {halves[0] | halves[1] << 16, halves[2] | halves[3] << 16};
#else
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low;"
      "  cvt.rn.f16x2.e4m3x2 %1, high; }"
      : "=r"(pairs.x), "=r"(pairs.y)
      : "r"(four));
#endif
  return pairs;
}

}  // namespace v0
}  // namespace tessera
