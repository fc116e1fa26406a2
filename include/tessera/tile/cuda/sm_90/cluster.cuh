// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Clusters: thread blocks on neighbouring multiprocessors that may use each other's shared memory (sm_90).
///
/// A program asks for them with `static constexpr int blocks_per_cluster = 2;`, see exec/cuda.cuh.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>

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

/// Stores four words at the address of `shared` in the shared memory of thread block `rank` of the cluster, where their
/// 16 bytes arrive at the barrier at the address of `arrived`. Who waits there, reads them.
__device__ __forceinline__ void send_to_block(unsigned rank, void* shared, int4 const& words, shared_barrier& arrived) {
  asm volatile(
      "{ .reg .b32 place, barrier; mapa.shared::cluster.u32 place, %0, %2; mapa.shared::cluster.u32 barrier, %1, %2;"
      "  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [place], {%3, %4, %5, %6}, [barrier]; "
      "}" ::"r"(detail::plain_shared_address(shared)),
      "r"(detail::plain_shared_address(&arrived)), "r"(rank), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
      : "memory");
}

}  // namespace v0
}  // namespace tessera
