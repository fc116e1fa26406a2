// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Copies from global to shared memory that run beside the threads that asked for them (cp.async, sm_80 and later).
///
///     for (int i = lane; i < units; i += 32) { async_copy_16(&scratch.words[8 * i], words + 8 * i); }
///     async_copy_wait_all();                                    // this thread's copies; then sync the group
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// Starts copying 16 bytes; both addresses are multiples of 16. Bypasses L1.
__device__ __forceinline__ void async_copy_16(void* shared, void const* global) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}

/// Waits for all copies that this thread started.
__device__ __forceinline__ void async_copy_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace v0
}  // namespace tessera
