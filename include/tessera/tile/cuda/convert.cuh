// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Two floats to two stored values by the machine's own instructions: the bits that store<T>() gives, in a fraction of
/// the time.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>

namespace tessera {
inline namespace v0 {

/// `low` in the lower half.
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high);

template <>
__device__ __forceinline__ std::uint32_t pack_pair<bfloat16>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
__device__ __forceinline__ std::uint32_t pack_pair<float16>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace v0
}  // namespace tessera
