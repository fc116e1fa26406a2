// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Accesses shared memory by 32-bit addresses, which need no base and leave no doubt which memory is meant.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The 32-bit address, computed wherever the compiler likes.
__device__ __forceinline__ std::uint32_t plain_shared_address(void const* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace detail

/// The 32-bit address, computed where this is called and kept in a register: left to itself, the compiler computes it
/// at every use.
__device__ __forceinline__ std::uint32_t shared_address(void const* pointer) {
  std::uint32_t address = static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
  asm volatile("mov.u32 %0, %0;" : "+r"(address));
  return address;
}

/// The address begin + (index & (2^Bits - 1)) * 4, in two instructions where the compiler would take three.
template <int Bits>
__device__ __forceinline__ std::uint32_t table_address(std::uint32_t begin, std::uint32_t index) {
  std::uint32_t address;
  asm("{ .reg .u32 t; and.b32 t, %1, %2; mad.lo.u32 %0, t, 4, %3; }"
      : "=r"(address)
      : "r"(index), "n"((1 << Bits) - 1), "r"(begin));
  return address;
}

/// Loads 4 bytes at a multiple of 4.
__device__ __forceinline__ std::uint32_t load_shared_u32(std::uint32_t address) {
  std::uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
  return value;
}

/// Loads 8 bytes at a multiple of 8.
__device__ __forceinline__ uint2 load_shared_u32x2(std::uint32_t address) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address));
  return value;
}

/// Loads 16 bytes at a multiple of 16.
__device__ __forceinline__ float4 load_shared_f32x4(std::uint32_t address) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(address));
  return value;
}

/// Loads 2 bytes at a multiple of 2.
__device__ __forceinline__ std::uint32_t load_shared_u16(std::uint32_t address) {
  std::uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address));
  return value;
}

/// Stores the lower 2 bytes of `value` at a multiple of 2.
__device__ __forceinline__ void store_shared_u16(std::uint32_t address, std::uint32_t value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(static_cast<std::uint16_t>(value)) : "memory");
}

/// Stores 4 bytes at a multiple of 4.
__device__ __forceinline__ void store_shared_u32(std::uint32_t address, std::uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

/// Stores 8 bytes at a multiple of 8.
__device__ __forceinline__ void store_shared_u32x2(std::uint32_t address, uint2 value) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(value.x), "r"(value.y) : "memory");
}

}  // namespace v0
}  // namespace tessera
