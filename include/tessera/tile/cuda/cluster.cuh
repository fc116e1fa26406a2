// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Clusters: thread blocks on neighbouring multiprocessors that may use each other's shared memory (sm_90).
///
/// A program asks for them with `static constexpr int blocks_per_cluster = 2;`, see exec/cuda.cuh.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// Which thread block of its cluster this is.
[[nodiscard]] __device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Which cluster of the launch this is, and how many there are.
[[nodiscard]] __device__ __forceinline__ unsigned cluster_index() {
  unsigned index;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
[[nodiscard]] __device__ __forceinline__ unsigned cluster_count() {
  unsigned count;
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
  return count;
}

/// All threads of the cluster: what they wrote before, all see after. The two halves allow for work between them.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void sync_cluster() {
  arrive_at_cluster();
  wait_for_cluster();
}

/// The address, as seen from the cluster, of what lies at `shared` in this thread block, but in thread block `rank`.
[[nodiscard]] __device__ __forceinline__ std::uint32_t address_in_cluster(std::uint32_t shared, unsigned rank) {
  std::uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

}  // namespace v0
}  // namespace tessera
