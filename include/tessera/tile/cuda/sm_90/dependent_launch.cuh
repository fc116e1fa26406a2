// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Programmatic dependent launch: how a kernel overlaps with the kernels before and after it on a stream (sm_90; before
/// that they do not overlap, and these functions do nothing).
#pragma once

namespace tessera {
inline namespace v0 {

/// Lets the stream's next kernel take multiprocessors as this one leaves them, once all threads have called this.
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until all earlier work of the stream is done and visible. Every thread of a kernel calls it, so that the end
/// of the kernel still means the end of all earlier work.
__device__ __forceinline__ void wait_for_stream() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace v0
}  // namespace tessera
