// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How a kernel and those before and after it on a stream overlap (sm_90; before that they do not, and nothing is
/// done).
#pragma once

namespace tessera {
inline namespace v0 {

/// Lets the stream's next kernel take multiprocessors as soon as this one leaves them, once all threads came here.
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until all that was enqueued before is done and to be seen. Every thread of a kernel does, so that its end
/// still means the end of all before it.
__device__ __forceinline__ void wait_for_stream() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace v0
}  // namespace tessera
