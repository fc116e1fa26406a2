// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Arithmetic on pairs of 16-bit numbers in 32-bit words, both numbers at a time.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>

namespace tessera {
inline namespace v0 {

/// Products of fp16 pairs, each rounded once.
__device__ __forceinline__ std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

/// a * b + c of bf16 pairs, each rounded once.
__device__ __forceinline__ std::uint32_t multiply_add_bf16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
/// a * b + c of fp16 pairs, each rounded once.
__device__ __forceinline__ std::uint32_t multiply_add_f16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

/// The larger ones of two pairs of fp16 without signs. A NaN is larger than a number, and need not keep its bits.
__device__ __forceinline__ std::uint32_t larger_magnitudes_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t larger;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("max.u16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
#else
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
#endif
  return larger;
}

/// The smaller ones of two pairs of fp16. If one is NaN, the other number results.
__device__ __forceinline__ std::uint32_t minimum_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t smaller;
  asm("min.f16x2 %0, %1, %2;" : "=r"(smaller) : "r"(a), "r"(b));
  return smaller;
}
/// The larger ones of two pairs of fp16. If one is NaN, the other number results.
__device__ __forceinline__ std::uint32_t maximum_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t larger;
  asm("max.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}

/// The values of a pair times 1 + fraction, rounded once, to the nearest, ties to even; both halves of `fractions` are
/// the same type's fraction. Subnormal numbers are kept whatever flags the compiler is given.
template <class T>
__device__ __forceinline__ std::uint32_t enlarge_pair(std::uint32_t pair, std::uint32_t fractions);

/// Two bf16 values times 1 + fraction.
template <>
__device__ __forceinline__ std::uint32_t enlarge_pair<bfloat16>(std::uint32_t pair, std::uint32_t fractions) {
  std::uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %1;" : "=r"(product) : "r"(pair), "r"(fractions));
  return product;
}
/// Two fp16 values times 1 + fraction.
template <>
__device__ __forceinline__ std::uint32_t enlarge_pair<float16>(std::uint32_t pair, std::uint32_t fractions) {
  std::uint32_t product;
  asm("fma.rn.f16x2 %0, %1, %2, %1;" : "=r"(product) : "r"(pair), "r"(fractions));
  return product;
}
/// The bits of a float times 1 + fraction, from the bits of both.
template <>
__device__ __forceinline__ std::uint32_t enlarge_pair<float>(std::uint32_t value, std::uint32_t fraction) {
  std::uint32_t product;
  asm("{ .reg .f32 v, f, p; mov.b32 v, %1; mov.b32 f, %2; fma.rn.f32 p, v, f, v; mov.b32 %0, p; }"
      : "=r"(product)
      : "r"(value), "r"(fraction));
  return product;
}

/// Transposes an 8 x 8 matrix of 16-bit elements. Before and after, lane l holds columns 2 * (l % 4) and 2 * (l % 4) +
/// 1 of row l / 4.
__device__ __forceinline__ std::uint32_t transposed_matrix(std::uint32_t pair) {
  std::uint32_t other;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(pair));
  return other;
}

}  // namespace v0
}  // namespace tessera
