// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The index of a thread in its block, read where this is called: programs that need all registers in a loop would
/// rather read it there than keep what follows from it.
#pragma once

namespace tessera {
inline namespace v0 {

/// The index in its block's first dimension.
__device__ __forceinline__ unsigned thread_index_here() {
  unsigned index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

}  // namespace v0
}  // namespace tessera
