// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Asynchronous copies from global to shared memory, which run beside the threads that start them (cp.async, sm_80 on),
/// and the word of programs for them, `copies_in_flight`, for groups of CUDA threads.
///
///     for (int i = lane; i < units; i += 32) { async_copy_16(&scratch.words[8 * i], words + 8 * i); }
///     async_copy_wait_all();                                    // this thread's copies; then sync the group
#pragma once

#include <cstdint>

#include <tessera/core/with_constant.hpp>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {

/// Starts copying 16 bytes, bypassing L1; both addresses are multiples of 16.
__device__ __forceinline__ void async_copy_16(void* shared, void const* global) {
  auto const address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}

/// The same, while the second-level cache loads the whole 128 bytes around, which other lanes copy soon.
__device__ __forceinline__ void async_copy_16_of_line(void* shared, void const* global) {
  auto const address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}

/// Starts copying Bytes, 4, 8 or 16, of which both addresses are multiples.
template <int Bytes>
__device__ __forceinline__ void async_copy(void* shared, void const* global) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "tessera: asynchronous copies have 4, 8 or 16 bytes");
  if constexpr (Bytes == 16) {
    async_copy_16(shared, global);
  } else {
    auto const address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(global), "n"(Bytes) : "memory");
  }
}
/// Starts copying 4 bytes to an address of shared memory; both addresses are multiples of 4.
__device__ __forceinline__ void async_copy_4(std::uint32_t shared, void const* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}
/// Starts copying 16 bytes that lie `Offset` behind both addresses: the instruction adds it.
template <int Offset>
__device__ __forceinline__ void async_copy_16_behind(std::uint32_t shared, void const* global) {
  asm volatile("cp.async.cg.shared.global [%0 + %2], [%1 + %2], 16;" ::"r"(shared), "l"(global), "n"(Offset)
               : "memory");
}
/// Starts copying Bytes, a multiple of 16, by all lanes of a warp; both addresses are multiples of 16.
template <int Bytes>
__device__ __forceinline__ void async_copy_by_warp(void* shared, void const* global, int lane) {
  static_assert(Bytes % 16 == 0, "tessera: a warp's asynchronous copies have whole 16 bytes");
  constexpr int step = 16 * lanes_in_a_warp;
  constexpr int whole = Bytes / step;
  auto const to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) + static_cast<std::uint32_t>(16 * lane);
  auto const* const from = static_cast<unsigned char const*>(global) + 16 * lane;
  each_constant<whole>([&](auto i) { async_copy_16_behind<step * i.value>(to, from); });
  if (Bytes % step > 16 * lane) {
    async_copy_16_behind<step * whole>(to, from);
  }
}
/// Makes this thread's copies since the last call one group, to be awaited together. The group may be empty.
__device__ __forceinline__ void async_copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most the last `Pending` groups of this thread are not done. Other threads see what was copied after
/// a sync.
template <int Pending>
__device__ __forceinline__ void async_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}
/// Starts copying 16 bytes to an address of shared memory, or fills 16 bytes with zeros and reads nothing; both
/// addresses are multiples of 16.
__device__ __forceinline__ void async_copy_16_or_zero(std::uint32_t shared, void const* global, bool is_copied) {
  asm volatile(
      "{ .reg .pred ignored; setp.eq.s32 ignored, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, ignored; }" ::"r"(
          shared),
      "l"(global), "r"(static_cast<int>(is_copied))
      : "memory");
}
/// The same to a pointer to shared memory.
__device__ __forceinline__ void async_copy_16_or_zero(void* shared, void const* global, bool is_copied) {
  async_copy_16_or_zero(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)), global, is_copied);
}

/// Starts copying the first `bytes` of Bytes, 4 or 8, of which both addresses are multiples, and fills the others with
/// zeros.
template <int Bytes>
__device__ __forceinline__ void async_copy_or_zeros(void* shared, void const* global, int bytes) {
  static_assert(Bytes == 4 || Bytes == 8, "tessera: words of asynchronous copies have 4 or 8 bytes");
  auto const address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(global), "n"(Bytes), "r"(bytes)
               : "memory");
}

/// Waits for all copies that this thread started.
__device__ __forceinline__ void async_copy_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Prefetches a range of global memory into L2, as one long read of DRAM. One thread calls it; the range is rounded to
/// whole 16 bytes. Before sm_90 it does nothing.
__device__ __forceinline__ void prefetch_to_l2(void const* global, std::int64_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  auto const address = reinterpret_cast<std::uint64_t>(global) & ~std::uint64_t{15};
  auto const rounded = static_cast<std::uint32_t>(bytes) & ~15u;
  if (rounded > 0) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(rounded) : "memory");
  }
#else
  static_cast<void>(global);
  static_cast<void>(bytes);
#endif
}

/// copies_in_flight for groups of CUDA threads.
template <CudaLanes G>
struct copies_in_flight<G> {
  /// Starts copying a chunk, or fills it with zeros and reads nothing.
  template <class T>
  __device__ __forceinline__ static void begin(tile_chunk<T>& to, tile_chunk<T> const* from, bool is_copied) {
    async_copy_16_or_zero(&to, from, is_copied);
  }
  /// Starts copying the first `bytes` of a word, and fills the others with zeros.
  template <int Bytes>
  __device__ __forceinline__ static void begin_word(void* to, void const* from, int bytes) {
    async_copy_or_zeros<Bytes>(to, from, bytes);
  }
  /// Makes the lane's copies since the last call one batch, which may be empty.
  __device__ __forceinline__ static void commit() { async_copy_commit(); }
  /// Waits until at most the last `Pending` batches of the lane are on their way.
  template <int Pending>
  __device__ __forceinline__ static void await() {
    async_copy_wait<Pending>();
  }
};

}  // namespace v0
}  // namespace tessera
