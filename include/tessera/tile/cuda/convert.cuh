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

/// Four floats to four e4m3 bytes, `a` lowest; what is too large saturates at 448.
__device__ __forceinline__ std::uint32_t pack_four_e4m3(float a, float b, float c, float d) {
  std::uint32_t four;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;"
      "  mov.b32 %0, {low, high}; }"
      : "=r"(four)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return four;
}

}  // namespace v0
}  // namespace tessera
