// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Counters in global memory by which thread blocks of one launch wait for each other's results (sm_90).
///
///     add_to_counter(made, 1);                  // one thread, when it and those that it has synced with have written
///     await_counter(made, 8);                   // another one, before it reads what eight such threads have written
///     std::int32_t number = take_number(next);  // 0, 1, 2, ...: who has a lower number has begun
///
/// Counters are zero before the launch. Nobody may wait for a block that has not begun: one that takes its work by
/// take_number() waits only for lower numbers.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// Adds to a counter, and releases what this thread wrote, and what it saw of others.
__device__ __forceinline__ void add_to_counter(std::int32_t* counter, std::int32_t count) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(counter)), "r"(count)
               : "memory");
}

/// Waits until a counter is at least `count`, and sees what those who added to it have released.
__device__ __forceinline__ void await_counter(std::int32_t const* counter, std::int32_t count) {
  std::int32_t now;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(counter)) : "memory");
  } while (now < count);
}

/// The counter's value before this call, which adds 1 to it.
[[nodiscard]] __device__ __forceinline__ std::int32_t take_number(std::int32_t* counter) {
  std::int32_t before;
  asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return before;
}

/// Orders what TMA reads and writes in global memory after this thread's ordinary reads and writes before this call,
/// and these after what TMA has done before: between a counter and boxes.
__device__ __forceinline__ void fence_async_proxy_of_memory() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace v0
}  // namespace tessera
