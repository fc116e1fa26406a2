// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Clusters: thread blocks on neighbouring multiprocessors that may use each other's shared memory (sm_90).
///
/// A program asks for them with `static constexpr int blocks_per_cluster = 2;`, see exec/cuda.cuh.
#pragma once

namespace tessera {
inline namespace v0 {

/// Which thread block of its cluster this is.
[[nodiscard]] __device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// All threads of the cluster: what they wrote before, all see after. The two halves allow for work between them.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
/// The second half: until all threads of the cluster have arrived.
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// Both halves at once.
__device__ __forceinline__ void sync_cluster() {
  arrive_at_cluster();
  wait_for_cluster();
}

}  // namespace v0
}  // namespace tessera
