// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How compress_pages (program/paged_cache/write_pages.cuh) loads keys and values of a page into shared memory, and
/// stores the page: `bulk_page_copies` by TMA, for which one warp starts a few copies for all (sm_90), and
/// `chunk_page_copies` by cp.async and stores of 16 bytes, which all threads share (sm_80 on). Both have the same
/// members, and tell threads by barriers in shared memory that loads are done.
#pragma once

#include <cstddef>

#include <tessera/program/paged_cache/detail/page_lanes.hpp>
#include <tessera/program/paged_cache/detail/page_source.cuh>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>

namespace tessera {
inline namespace v0 {

/// Copies by TMA.
struct bulk_page_copies {
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool is_by_one_warp = true;  ///< whether one warp starts all copies

  /// Makes a barrier ready for loads by a block of so many lanes. One lane.
  __device__ __forceinline__ static void begin(shared_barrier& full, int) { full.init(1); }
  /// Makes all barriers visible to what arrives at them, before the block meets. The lane that made them.
  __device__ __forceinline__ static void fence_begin() { fence_barrier_init(); }
  /// Lets what this thread has read or written come before copies that start after a barrier.
  __device__ __forceinline__ static void fence() { fence_async_proxy(); }

  /// Starts loading keys or values of a page, of both layers. One warp.
  template <int Channels, class T>
  __device__ __forceinline__ static void load(page_rows<T> const& rows, page_rows_work_item<T> const& work, int part,
                                              T* first, T* second, shared_barrier& full, int lane) {
    rows.fetch(work, part, first, second, full, lane % 32);
  }
  /// Stores bytes, a multiple of 16 at multiples of 16, by the first of `Lanes` lanes.
  template <int Lanes>
  __device__ __forceinline__ static void store(std::byte* to, unsigned char const* from, int bytes, int) {
    store_bytes(to, from, bytes);
  }
  /// Ends a batch of stores.
  __device__ __forceinline__ static void commit() { commit_box_stores(); }
  /// Waits until what this thread stores has been read from shared memory.
  __device__ __forceinline__ static void await_reads() { await_box_reads<0>(); }
  /// Waits until what this thread stores is in memory.
  __device__ __forceinline__ static void await_stores() { await_box_stores<0>(); }
};

/// Copies of 16 bytes by all threads. Stores have read shared memory when they are issued, so that nothing waits for
/// them.
struct chunk_page_copies {
  static constexpr int from_architecture = 800;
  static constexpr int before_architecture = 10000;
  static constexpr bool is_by_one_warp = false;  ///< whether one warp starts all copies

  /// Makes a barrier ready for loads by a block of so many lanes. One lane.
  __device__ __forceinline__ static void begin(shared_barrier& full, int lanes) { full.init(lanes); }
  /// Other threads see barriers after the block has met.
  __device__ __forceinline__ static void fence_begin() {}
  /// Barriers order all that these copies read and write.
  __device__ __forceinline__ static void fence() {}

  /// Starts loading keys or values of a page, of both layers; one layer is loaded twice, as page_rows::fetch does. All
  /// threads, of which each loads the same 16 bytes of every sixteenth token.
  template <int Channels, class T>
  __device__ __forceinline__ static void load(page_rows<T> const&, page_rows_work_item<T> const& work, int part,
                                              T* first, T* second, shared_barrier& full, int lane) {
    constexpr int tokens = cache_page_format::tokens;
    constexpr int elements = 16 / static_cast<int>(sizeof(T));  // of a chunk
    constexpr int chunks = Channels / elements;                 // of a token
    constexpr int lanes = page_lanes<Channels>::lanes;
    constexpr int step = lanes / chunks;  // tokens
    static_assert(lanes % chunks == 0 && tokens % step == 0);
    int const token = lane / chunks;
    int const column = lane % chunks * elements;
#pragma unroll
    for (int layer = 0; layer < 2; ++layer) {
      auto const rows = work.layers_rows[part][layer];
      T* const to = (layer == 0 ? first : second) + lane * elements;
#pragma unroll
      for (int i = 0; i < tokens; i += step) {
        async_copy_16_of_line(to + i * Channels, rows.row(token + i, work.in_tail, Channels) + column);
      }
    }
    full.arrive_after_copies();
  }
  /// Stores bytes, a multiple of 16 at multiples of 16, by `Lanes` lanes.
  template <int Lanes>
  __device__ __forceinline__ static void store(std::byte* to, unsigned char const* from, int bytes, int lane) {
#pragma unroll 1
    for (int i = 16 * lane; i < bytes; i += 16 * Lanes) {
      *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<uint4 const*>(from + i);
    }
  }
  /// There are no batches.
  __device__ __forceinline__ static void commit() {}
  /// Nothing is read later.
  __device__ __forceinline__ static void await_reads() {}
  /// The end of the kernel waits for stores.
  __device__ __forceinline__ static void await_stores() {}
};

}  // namespace v0
}  // namespace tessera
