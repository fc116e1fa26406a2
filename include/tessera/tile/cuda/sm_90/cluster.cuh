// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Clusters: thread blocks on neighbouring multiprocessors that may use each other's shared memory (sm_90).
///
/// A program asks for them with `static constexpr int blocks_per_cluster = 2;`, see exec/cuda.cuh.
#pragma once

namespace tessera {
inline namespace v0 {

/// The rank of this thread block in its cluster.
[[nodiscard]] __device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Arrives at the cluster's barrier: what threads wrote before it, all threads see after wait_for_cluster(). Work can
/// stand between the two.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
/// Waits until all threads of the cluster have arrived.
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// Arrives and waits.
__device__ __forceinline__ void sync_cluster() {
  arrive_at_cluster();
  wait_for_cluster();
}

}  // namespace v0
}  // namespace tessera
