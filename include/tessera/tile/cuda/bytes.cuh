// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Moving bytes within and between registers, and whole vectors between registers and global memory.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// Four bytes picked from eight: nibble i of `selector` says which byte (0 to 3 of a, 4 to 7 of b) becomes byte i.
__device__ __forceinline__ std::uint32_t pick_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  return __byte_perm(a, b, selector);
}

/// Where a mask bit is set the bit of a, else that of b.
__device__ __forceinline__ std::uint32_t select_bits(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  std::uint32_t selected;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(selected) : "r"(mask), "r"(a), "r"(b));
  return selected;
}

/// a * b + c in one instruction, where the compiler might see a shift in the product and take two.
__device__ __forceinline__ std::uint32_t multiply_add(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t sum;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

/// The same word, of which the compiler forgets what it is: what was computed from it before is computed again instead
/// of kept in registers.
__device__ __forceinline__ std::uint32_t recompute(std::uint32_t word) {
  asm volatile("" : "+r"(word));
  return word;
}

/// Reads 8 bytes that will not be read again: they leave the caches to others.
__device__ __forceinline__ uint2 load_once(uint2 const* address) {
  return __ldcs(address);
}
/// Reads 16 bytes that will not be read again: they leave the caches to others.
__device__ __forceinline__ uint4 load_once(uint4 const* address) {
  return __ldcs(address);
}
/// Reads 4 bytes that will not be read again: they leave the caches to others.
__device__ __forceinline__ std::uint32_t load_once(std::uint32_t const* address) {
  return __ldcs(address);
}
/// Reads 16 bytes from the L2 cache, past L1: another multiprocessor may have written them meanwhile, or this one will
/// not read them again but others may.
__device__ __forceinline__ uint4 load_from_l2(uint4 const* address) {
  return __ldcg(address);
}
/// Reads four floats from the L2 cache, past L1, as the overload for 16 bytes does.
__device__ __forceinline__ float4 load_from_l2(float4 const* address) {
  return __ldcg(address);
}
/// Reads a float from the L2 cache, past L1, as the overload for 16 bytes does.
__device__ __forceinline__ float load_from_l2(float const* address) {
  return __ldcg(address);
}
/// Reads 16 bytes from the L2 cache, as load_from_l2 does, and begins here: the compiler does not put the read off
/// behind a wait that follows.
__device__ __forceinline__ uint4 begin_load_from_l2(uint4 const* address) {
  uint4 found;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
               : "l"(address));
  return found;
}
/// A write that stays between what is before and after it: gathered at the end, many of them take many registers.
__device__ __forceinline__ void store_here(uint2* address, uint2 value) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(value.x), "r"(value.y) : "memory");
}
/// Writes 16 bytes that this kernel will not read.
__device__ __forceinline__ void store_once(uint4* address, uint4 value) {
  __stcs(address, value);
}
/// Writes 8 bytes that this kernel will not read.
__device__ __forceinline__ void store_once(uint2* address, uint2 value) {
  __stcs(address, value);
}
/// Writes 4 bytes that this kernel will not read.
__device__ __forceinline__ void store_once(std::uint32_t* address, std::uint32_t value) {
  __stcs(address, value);
}

/// Bit i set for all lanes i below this one.
__device__ __forceinline__ std::uint32_t lanes_below() {
  std::uint32_t mask;
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));  // volatile: kept in a register, not read again in loops
  return mask;
}

}  // namespace v0
}  // namespace tessera
