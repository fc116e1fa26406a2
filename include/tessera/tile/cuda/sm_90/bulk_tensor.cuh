// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Copies boxes of a tensor_map between global and shared memory by TMA (sm_90). One thread starts a copy for all.
///
///     full.arrive_and_expect(bytes);                              // one thread
///     load_box(shared, program.map, full, {column, row});         // then everybody waits for `full`
///
///     fence_async_proxy(); __syncwarp();                                 // the box is written
///     if (lane == 0) { store_box(program.map, shared, {column, row}); commit_box_stores(); await_box_reads<0>(); }
///
/// Maps lie in the parameters of a kernel. A box in shared memory is aligned to 1024 bytes.
#pragma once

#include <cstdint>

#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>

namespace tessera {
inline namespace v0 {

/// The coordinate of a box's first element; it may be negative or beyond the matrix.
struct box_coordinate {
  std::int32_t column;  ///< column of the matrix
  std::int32_t row;     ///< row of the matrix
};

/// Prefetches the map itself, so that the first copy does not wait for it.
__device__ __forceinline__ void prefetch_tensor_map(tensor_map const& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Copies a box from global to shared memory. `done` counts the box's bytes, also those outside of the matrix.
__device__ __forceinline__ void load_box(void* shared, tensor_map const& map, shared_barrier& done,
                                         box_coordinate coordinate) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          detail::plain_shared_address(shared)),
      "l"(&map), "r"(detail::plain_shared_address(&done)), "r"(coordinate.column), "r"(coordinate.row)
      : "memory");
}

/// Copies a box to the same address in all thread blocks of the cluster whose bits are set in `ranks`; each block's own
/// `done` counts its bytes.
__device__ __forceinline__ void load_box_for_cluster(void* shared, tensor_map const& map, shared_barrier& done,
                                                     box_coordinate coordinate, std::uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(detail::plain_shared_address(shared)),
      "l"(&map), "r"(detail::plain_shared_address(&done)), "r"(coordinate.column), "r"(coordinate.row), "h"(ranks)
      : "memory");
}

/// Copies neighbouring bytes from global to shared memory, a multiple of 16 at a multiple of 16.
__device__ __forceinline__ void load_bytes(void* shared, void const* global, int bytes, shared_barrier& done) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   detail::plain_shared_address(shared)),
               "l"(global), "r"(bytes), "r"(detail::plain_shared_address(&done))
               : "memory");
}

/// Copies bytes from shared to global memory. The threads that wrote them have called fence_async_proxy() before.
__device__ __forceinline__ void store_bytes(void* global, void const* shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(detail::plain_shared_address(shared)), "r"(bytes)
               : "memory");
}

/// How long L2 keeps the bytes of a copy: less long than data that are read again.
struct cache_policy {
  std::uint64_t bits;  ///< the hardware's, opaque

  /// The policy of lines that L2 evicts first.
  __device__ __forceinline__ static cache_policy evict_first() {
    cache_policy made;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(made.bits));
    return made;
  }
};

/// Does what load_bytes() above does; `policy` says how long L2 keeps the bytes.
__device__ __forceinline__ void load_bytes(void* shared, void const* global, int bytes, shared_barrier& done,
                                           cache_policy policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
      "%4;" ::"r"(detail::plain_shared_address(shared)),
      "l"(global), "r"(bytes), "r"(detail::plain_shared_address(&done)), "l"(policy.bits)
      : "memory");
}

/// Copies a box from shared to global memory. The threads that wrote it have called fence_async_proxy() before. The
/// coordinate is not negative. Where rows of the matrix do not have whole 16 bytes, the rest of the last 16 is written
/// too (seen on sm_90).
__device__ __forceinline__ void store_box(tensor_map const& map, void const* shared, box_coordinate coordinate) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(detail::plain_shared_address(shared)), "r"(coordinate.column), "r"(coordinate.row)
               : "memory");
}

/// Does what store_box() above does; `policy` says how long L2 keeps the box.
__device__ __forceinline__ void store_box(tensor_map const& map, void const* shared, box_coordinate coordinate,
                                          cache_policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%2, %3}], [%1], %4;" ::"l"(&map),
      "r"(detail::plain_shared_address(shared)), "r"(coordinate.column), "r"(coordinate.row), "l"(policy.bits)
      : "memory");
}

/// Commits this thread's stores since the last call as one group.
__device__ __forceinline__ void commit_box_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until the boxes of all but the last `Pending` groups were read, so that their shared memory may be
/// overwritten.
template <int Pending>
__device__ __forceinline__ void await_box_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

/// Waits until all but the last `Pending` groups are in global memory.
template <int Pending>
__device__ __forceinline__ void await_box_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace v0
}  // namespace tessera
