// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Converts floats to stored values and back by the GPU's own instructions: the bits that store<T>() and load() give,
/// in a fraction of the time.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/cuda/pairs.cuh>

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

namespace detail {

/// Two e4m3 bytes that lie in the upper halves of a word's halves, as fp16 of 2^-8 of their values.
__device__ __forceinline__ std::uint32_t small_e4m3_pair(std::uint32_t pair) {
  return (pair & 0x80008000U) | ((pair >> 1) & 0x3f803f80U);
}

/// The same of bytes in the lower halves of a word's halves: half of its instructions need not run in the pipe of
/// logic.
__device__ __forceinline__ std::uint32_t small_e4m3_pair_of_low(std::uint32_t pair) {
  std::uint32_t const moved = pair << 7;  // the sign is one place below its own
  return moved + (moved & 0x40004000U);
}

}  // namespace detail

/// Four e5m2 bytes as two pairs of fp16, the lowest byte first; exact, NaNs included. They are upper halves of fp16.
__device__ __forceinline__ uint2 unpack_four_e5m2(std::uint32_t four) {
  return {__byte_perm(four, 0, 0x1404), __byte_perm(four, 0, 0x3424)};
}

/// Four e4m3 bytes as two pairs of fp16, the lowest byte first; exact. NaNs are the NaN that store() makes.
/// Before sm_89 it is arithmetic: the bits of e4m3 are those of an fp16 that is 2^-8 of its value, subnormal or not.
__device__ __forceinline__ uint2 unpack_four_e4m3(std::uint32_t four) {
  uint2 pairs;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  constexpr std::uint32_t two_to_8 = 0x5c005c00U;
  uint2 const spread = unpack_four_e5m2(four);
  pairs = {multiply_pairs(detail::small_e4m3_pair(spread.x), two_to_8),
           multiply_pairs(detail::small_e4m3_pair(spread.y), two_to_8)};
  std::uint32_t const nan = ((four & 0x7f7f7f7fU) + 0x01010101U) & 0x80808080U;  // the highest bits of NaNs' bytes
  if (nan != 0) {
    uint2 const of_nan = unpack_four_e5m2(nan >> 7);  // 0x0100 for a NaN
    uint2 const all = {(of_nan.x >> 8) * 0xffffU, (of_nan.y >> 8) * 0xffffU};
    pairs = {(pairs.x & ~all.x) | (all.x & 0x7fff7fffU), (pairs.y & ~all.y) | (all.y & 0x7fff7fffU)};
  }
#else
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low;"
      "  cvt.rn.f16x2.e4m3x2 %1, high; }"
      : "=r"(pairs.x), "=r"(pairs.y)
      : "r"(four));
#endif
  return pairs;
}

/// Four codes of a byte each as two pairs of fp16, the lowest byte first; exact. Codes are no NaNs.
template <class Code>
struct widened_pairs;

/// Codes of e4m3. Before sm_89 what results is 2^-8 of their values, which takes half of the instructions.
template <>
struct widened_pairs<float8_e4m3> {
  /// What a value of a pair is to be multiplied by.
  __device__ static constexpr float unit() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
    return 256.0F;
#else
    return 1.0F;
#endif
  }
  /// The pairs of four codes.
  __device__ __forceinline__ static uint2 of(std::uint32_t four) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
    return {detail::small_e4m3_pair_of_low(__byte_perm(four, 0, 0x4140)),
            detail::small_e4m3_pair_of_low(__byte_perm(four, 0, 0x4342))};
#else
    return unpack_four_e4m3(four);
#endif
  }
};
/// Codes of e5m2.
template <>
struct widened_pairs<float8_e5m2> {
  /// What a value of a pair is to be multiplied by.
  __device__ static constexpr float unit() { return 1.0F; }
  /// The pairs of four codes.
  __device__ __forceinline__ static uint2 of(std::uint32_t four) { return unpack_four_e5m2(four); }
};
/// Codes of 8-bit integers. With its highest bit flipped, a byte is 128 more than the integer; as the lower bits of an
/// fp16 from 1024 on it is 1152 more.
template <>
struct widened_pairs<std::int8_t> {
  /// What a value of a pair is to be multiplied by.
  __device__ static constexpr float unit() { return 1.0F; }
  /// The pairs of four codes.
  __device__ __forceinline__ static uint2 of(std::uint32_t four) {
    std::uint32_t const raised = four ^ 0x80808080U;
    constexpr std::uint32_t one = 0x3c003c00U;
    constexpr std::uint32_t minus_1152 = 0xe480e480U;
    constexpr std::uint32_t from_1024 = 0x64646464U;
    return {multiply_add_f16x2(__byte_perm(raised, from_1024, 0x4140), one, minus_1152),
            multiply_add_f16x2(__byte_perm(raised, from_1024, 0x4342), one, minus_1152)};
  }
};

}  // namespace v0
}  // namespace tessera
