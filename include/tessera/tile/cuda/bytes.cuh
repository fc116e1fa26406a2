// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Moves bytes within and between registers, and whole vectors between registers and global memory.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// Four bytes picked from eight: nibble i of `selector` says which byte (0 to 3 of a, 4 to 7 of b) becomes byte i.
__device__ __forceinline__ std::uint32_t pick_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  return __byte_perm(a, b, selector);
}

/// For each bit that is set in the mask the bit of a, for the others the bit of b.
__device__ __forceinline__ std::uint32_t select_bits(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  std::uint32_t selected;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(selected) : "r"(mask), "r"(a), "r"(b));
  return selected;
}

/// (word & mask) ^ flipped in one instruction: of two constants the compiler would make two.
__device__ __forceinline__ std::uint32_t mask_and_flip(std::uint32_t word, std::uint32_t mask, std::uint32_t flipped) {
  std::uint32_t bits;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(bits) : "r"(word), "r"(mask), "r"(flipped));
  return bits;
}

/// a * b + c in one instruction; the compiler might see a shift in the product and take two.
__device__ __forceinline__ std::uint32_t multiply_add(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t sum;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

/// The same word, whose value the compiler no longer knows, so that it recomputes what depends on it instead of keeping
/// that in registers.
__device__ __forceinline__ std::uint32_t recompute(std::uint32_t word) {
  asm volatile("" : "+r"(word));
  return word;
}

/// Reads 8 bytes that will not be read again, so that the caches are left to other data.
__device__ __forceinline__ uint2 load_once(uint2 const* address) {
  return __ldcs(address);
}
/// Reads 16 bytes that will not be read again, so that the caches are left to other data.
__device__ __forceinline__ uint4 load_once(uint4 const* address) {
  return __ldcs(address);
}
/// Reads 4 bytes that will not be read again, so that the caches are left to other data.
__device__ __forceinline__ std::uint32_t load_once(std::uint32_t const* address) {
  return __ldcs(address);
}
/// Reads 16 bytes that nobody writes meanwhile, or gives zeros and reads nothing; without a branch, which a choice
/// between the two becomes.
__device__ __forceinline__ uint4 load_or_zero(uint4 const* address, bool is_read) {
  uint4 found;
  asm("{ .reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;"
      " @p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4]; }"
      : "=&r"(found.x), "=&r"(found.y), "=&r"(found.z), "=&r"(found.w)
      : "l"(address), "r"(static_cast<int>(is_read)));
  return found;
}
/// Reads 16 bytes from the L2 cache, past L1: either another multiprocessor may have written them meanwhile, or other
/// multiprocessors may read them again but this one will not.
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
/// Reads 16 bytes from the L2 cache, as load_from_l2 does, and begins here: the compiler does not delay the read to
/// after a wait that follows.
__device__ __forceinline__ uint4 begin_load_from_l2(uint4 const* address) {
  uint4 found;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
               : "l"(address));
  return found;
}
/// Writes 8 bytes here. The compiler does not move the write: many writes gathered at the end take many registers.
__device__ __forceinline__ void store_here(uint2* address, uint2 value) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(value.x), "r"(value.y) : "memory");
}
/// Writes 4 bytes here, as the overload for 8 bytes does.
__device__ __forceinline__ void store_here(std::uint32_t* address, std::uint32_t value) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
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

/// A mask whose bit i is set for all lanes i below this one.
__device__ __forceinline__ std::uint32_t lanes_below() {
  std::uint32_t mask;
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));  // volatile: kept in a register, not read again in loops
  return mask;
}

}  // namespace v0
}  // namespace tessera
