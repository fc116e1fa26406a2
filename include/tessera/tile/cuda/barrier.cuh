// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `shared_barrier`: an mbarrier in shared memory (sm_90), for pipelines whose producer is the copy engine.
///
///     if (threadIdx.x == 0) { full.init(1); fence_barrier_init(); }    // then sync the block, or the cluster
///     full.arrive_and_expect(bytes);                                   // the producer, before its copies
///     full.wait(phase);                                                // consumers; phase is 0, 1, 0, 1, ...
///
/// A phase ends when `count` arrivals came and all bytes that were expected are there. wait(p) returns once the phase
/// of parity p has ended, so wait(1) on a new barrier returns at once: a slot that nobody has used yet counts as free.
#pragma once

#include <cstdint>

#include <tessera/tile/cuda/shared_access.cuh>

namespace tessera {
inline namespace v0 {

/// An mbarrier in shared memory: phases that end when all have arrived and all announced bytes are there.
struct shared_barrier {
  std::uint64_t word;  ///< opaque: the hardware's

  /// One thread, before all others know of it.
  __device__ __forceinline__ void init(int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(count) : "memory");
  }
  /// One arrival; releases what this thread wrote.
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  /// One arrival, once `read`, or what it was made of, has come from shared memory. After arrive() copies may overwrite
  /// what loads before it have not brought yet: loads wait behind other warps' stores, and ptxas waits for them only
  /// where they are used. (Seen on H200, in attention: the scale of the tile that came next.)
  __device__ __forceinline__ void arrive_after(float read) {
    asm volatile(
        "{ .reg .pred p; setp.lt.f32 p, %1, 0f00000000;"
        "  @p mbarrier.arrive.shared::cta.b64 _, [%0]; @!p mbarrier.arrive.shared::cta.b64 _, [%0]; }" ::"r"(address()),
        "f"(read)
        : "memory");
  }
  /// Arrives and announces bytes that copies will bring in this phase.
  __device__ __forceinline__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }
  /// Arrives at the barrier that lies at the same place in the shared memory of thread block `rank` of the cluster. It
  /// orders nothing between thread blocks but what the copy engine and wgmma do: .release.cluster would, at the price
  /// of a memory barrier.
  __device__ __forceinline__ void arrive_at(unsigned rank) {
    asm volatile(
        "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;"
        "  mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(address()),
        "r"(rank)
        : "memory");
  }
  /// Whether the phase of this parity has ended; waits a while for it.
  [[nodiscard]] __device__ __forceinline__ bool has_ended(unsigned parity) {
    unsigned ended;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(ended)
                 : "r"(address()), "r"(parity)
                 : "memory");
    return ended != 0;
  }
  /// The same, but for a thread that has other things to do: try_wait may take a while to say no.
  [[nodiscard]] __device__ __forceinline__ bool has_ended_by_now(unsigned parity) {
    unsigned ended;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(ended)
                 : "r"(address()), "r"(parity)
                 : "memory");
    return ended != 0;
  }
  /// Until the phase of this parity has ended.
  __device__ __forceinline__ void wait(unsigned parity) {
    while (!has_ended(parity)) {
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ std::uint32_t address() const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(&word));
  }
};

/// Makes init known to the copy engine and to other thread blocks of the cluster; then sync them.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// What this thread wrote to shared memory by ordinary stores, the copy engine and wgmma will see, and what it read by
/// ordinary loads they will not overwrite before it has come; then sync with whoever starts them.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Syncs `threads` threads of the block, a multiple of 32, that name the same `id`: 1 to 15; 0 is __syncthreads().
__device__ __forceinline__ void sync_named(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// The same, for threads that do not wait for the others.
__device__ __forceinline__ void arrive_named(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace v0
}  // namespace tessera
