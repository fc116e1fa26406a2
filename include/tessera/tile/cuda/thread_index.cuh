// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The index of a thread in its block, read where this is called. Programs that need all registers in a loop read it
/// there rather than keep values that follow from it.
#pragma once

namespace tessera {
inline namespace v0 {

/// The thread's index in the first dimension of its block.
__device__ __forceinline__ unsigned thread_index_here() {
  unsigned index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

}  // namespace v0
}  // namespace tessera
