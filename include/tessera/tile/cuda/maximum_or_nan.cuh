// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `maximum_or_nan`, `minimum_or_nan`: the larger or the smaller of two floats, or NaN, by one instruction. Functions
/// of core/math.hpp, which drop a NaN, take three together with a test for NaN.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>

namespace tessera {
inline namespace v0 {

/// The larger value, or NaN if one of them is NaN.
__device__ __forceinline__ float maximum_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

/// The smaller value, or NaN if one of them is NaN.
__device__ __forceinline__ float minimum_or_nan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

/// The larger value or NaN of both halves of two pairs, which are bfloat16 or float16 as T says.
template <class T>
__device__ __forceinline__ std::uint32_t larger_pair_or_nan(std::uint32_t a, std::uint32_t b);

/// The larger values of pairs of bf16.
template <>
__device__ __forceinline__ std::uint32_t larger_pair_or_nan<bfloat16>(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
/// The larger values of pairs of fp16.
template <>
__device__ __forceinline__ std::uint32_t larger_pair_or_nan<float16>(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

}  // namespace v0
}  // namespace tessera
