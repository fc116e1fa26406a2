// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Arithmetic on both halves of a word at a time, each an unsigned integer of 16 bits, by one instruction (sm_90).
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// In each half the smaller of a + b, modulo 2^16, and c.
__device__ __forceinline__ std::uint32_t add_up_to_halves(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return __viaddmin_u16x2(a, b, c);
}
/// In each half the largest of three.
__device__ __forceinline__ std::uint32_t largest_halves(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return __vimax3_u16x2(a, b, c);
}

}  // namespace v0
}  // namespace tessera
