// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Multiplies stored values with one rounding, to the nearest, ties to even. Subnormal numbers are kept whatever flags
/// the compiler is given.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>

namespace tessera {
inline namespace v0 {

/// The values of a pair times 1 + fraction, where both halves of `fractions` are the same type's fraction.
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

}  // namespace v0
}  // namespace tessera
