// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `shared_barrier`: an mbarrier in shared memory (sm_90), for pipelines whose producer is TMA.
///
///     if (threadIdx.x == 0) { full.init(1); fence_barrier_init(); }    // then sync the block, or the cluster
///     full.arrive_and_expect(bytes);                                   // the producer, before its copies
///     full.wait(phase);                                                // consumers; phase is 0, 1, 0, 1, ...
///
/// A phase ends when `count` arrivals have come and all expected bytes are there. wait(p) returns once the phase of
/// parity p has ended. So wait(1) on a new barrier returns at once: a pipeline stage that was never used counts as
/// free.
#pragma once

#include <cstdint>

#include <tessera/tile/cuda/shared_access.cuh>

namespace tessera {
inline namespace v0 {

/// An mbarrier in shared memory. Its phases end when all arrivals have come and all announced bytes are there.
struct shared_barrier {
  std::uint64_t word;  ///< the hardware's state, opaque

  /// Initialises the barrier. One thread calls it, before others use the barrier.
  __device__ __forceinline__ void init(int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(count) : "memory");
  }
  /// Arrives once, and releases what this thread wrote.
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  /// Arrives once for a warp, whose lanes all call this: one of them arrives. It is for what tensor cores have read;
  /// where lanes have read, all of them arrive, because compute-sanitizer does not see that one arrives for others.
  __device__ __forceinline__ void arrive_for_warp() {
    asm volatile(
        "{ .reg .pred p; elect.sync _|p, 0xffffffff; @p mbarrier.arrive.shared::cta.b64 _, [%0]; }" ::"r"(address())
        : "memory");
  }
  /// The same, so many times.
  __device__ __forceinline__ void arrive_for_warp(int arrivals) {
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; @p mbarrier.arrive.shared::cta.b64 _, [%0], %1; }" ::"r"(
                     address()),
                 "r"(arrivals)
                 : "memory");
  }
  /// One arrival, once `read`, or the value that it was computed from, has been loaded from shared memory. With
  /// arrive() alone, copies may overwrite data that earlier loads have not returned yet: loads wait behind other warps'
  /// stores, and ptxas waits for them only where their values are used. (Seen on H200, in attention: a load returned
  /// the scale of the next tile.)
  __device__ __forceinline__ void arrive_after(float read) {
    asm volatile(
        "{ .reg .pred p; setp.lt.f32 p, %1, 0f00000000;"
        "  @p mbarrier.arrive.shared::cta.b64 _, [%0]; @!p mbarrier.arrive.shared::cta.b64 _, [%0]; }" ::"r"(address()),
        "f"(read)
        : "memory");
  }
  /// The same for a word.
  __device__ __forceinline__ void arrive_after(std::uint32_t read) {
    asm volatile(
        "{ .reg .pred p; setp.lt.s32 p, %1, 0;"
        "  @p mbarrier.arrive.shared::cta.b64 _, [%0]; @!p mbarrier.arrive.shared::cta.b64 _, [%0]; }" ::"r"(address()),
        "r"(read)
        : "memory");
  }
  /// The same where `arrives`, without a branch: for one lane of a warp, all of which have loaded by ldmatrix and then
  /// met in a sync_warp(), so that this lane arrives for them.
  __device__ __forceinline__ void arrive_after(std::uint32_t read, bool arrives) {
    asm volatile(
        "{ .reg .pred p, q, r; setp.ne.s32 r, %2, 0; setp.lt.and.s32 p|q, %1, 0, r;"
        "  @p mbarrier.arrive.shared::cta.b64 _, [%0]; @q mbarrier.arrive.shared::cta.b64 _, [%0]; }" ::"r"(address()),
        "r"(read), "r"(static_cast<int>(arrives))
        : "memory");
  }
  /// Arrives once for this thread when the copies that it has started by async_copy (tile/cuda/async_copy.cuh) are
  /// done. The thread goes on at once.
  __device__ __forceinline__ void arrive_after_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address()) : "memory");
  }
  /// Arrives and announces the bytes that copies will write in this phase.
  __device__ __forceinline__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }
  /// Arrives at the barrier at the same address in the shared memory of thread block `rank` of the cluster. Between
  /// thread blocks it orders only what TMA and wgmma do. .release.cluster would order more, at the price of a memory
  /// barrier.
  __device__ __forceinline__ void arrive_at(unsigned rank) {
    asm volatile(
        "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;"
        "  mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(address()),
        "r"(rank)
        : "memory");
  }
  /// The same once `read` has been loaded, as arrive_after() does.
  __device__ __forceinline__ void arrive_at_after(unsigned rank, float read) {
    asm volatile(
        "{ .reg .b32 remote; .reg .pred p; mapa.shared::cluster.u32 remote, %0, %1; setp.lt.f32 p, %2, 0f00000000;"
        "  @p mbarrier.arrive.shared::cluster.b64 _, [remote]; @!p mbarrier.arrive.shared::cluster.b64 _, [remote]; "
        "}" ::"r"(address()),
        "r"(rank), "f"(read)
        : "memory");
  }
  /// Whether the phase of this parity has ended; from sm_90 on the thread is suspended for a while to wait for that.
  [[nodiscard]] __device__ __forceinline__ bool has_ended(unsigned parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    return has_ended_by_now(parity);
#else
    unsigned ended;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(ended)
                 : "r"(address()), "r"(parity)
                 : "memory");
    return ended != 0;
#endif
  }
  /// Whether the phase of this parity has ended, tested without suspending the thread, for threads that have other
  /// work.
  [[nodiscard]] __device__ __forceinline__ bool has_ended_by_now(unsigned parity) {
    unsigned ended;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(ended)
                 : "r"(address()), "r"(parity)
                 : "memory");
    return ended != 0;
  }
  /// Waits until the phase of this parity has ended.
  __device__ __forceinline__ void wait(unsigned parity) {
    while (!has_ended(parity)) {
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ std::uint32_t address() const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(&word));
  }
};

/// Makes init visible to TMA and to other thread blocks of the cluster; sync with them afterwards.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Makes this thread's ordinary stores to shared memory visible to TMA and wgmma, and keeps TMA from overwriting what
/// its ordinary loads have not returned yet; sync with the threads that start these afterwards.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Syncs `threads` threads of the block, a multiple of 32, that name the same `id`: 1 to 15; 0 is __syncthreads().
__device__ __forceinline__ void sync_named(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Arrives at a named barrier without waiting for the others.
__device__ __forceinline__ void arrive_named(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace v0
}  // namespace tessera
