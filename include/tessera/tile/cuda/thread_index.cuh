// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Where a thread is: its index in its block, and the index of its block. Programs that were given a group ask the
/// group for its lane; parts of programs that were not, and loops over blocks, ask here.
///
///     int const lane = static_cast<int>(tessera::thread_index() % 32);
///
/// thread_index_here() reads the index where it is called. Programs that need all registers in a loop read it there
/// rather than keep values that follow from it.
#pragma once

#include <cuda_runtime.h>

namespace tessera {
inline namespace v0 {

/// The thread's index in its block. Calls leave the argument out: by it the index is read in the function that calls,
/// which compilers then see as if it had no call.
__device__ __forceinline__ unsigned thread_index(unsigned index = threadIdx.x) {
  return index;
}
/// The block's index in its grid.
__device__ __forceinline__ unsigned block_index() {
  return blockIdx.x;
}
/// The number of blocks of the grid.
__device__ __forceinline__ unsigned blocks_in_grid() {
  return gridDim.x;
}

/// The thread's index in its block, read here: the compiler neither keeps it nor moves the reading.
__device__ __forceinline__ unsigned thread_index_here() {
  unsigned index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

}  // namespace v0
}  // namespace tessera
