// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Exchanges between the lanes of a whole warp, each by one instruction. All 32 lanes call each of them together.
///
///     float const other = tessera::shuffle_xor(value, 16);        // that of the lane 16 away
///     if (tessera::any_of_warp(value > limit)) {                  // all lanes take the same branch
///       ...
///     }
///
/// Types are those that CUDA's shuffles take: numbers of 32 or 64 bits. `tile/per_lane.hpp` documents collectives of
/// any group and type.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The mask of all lanes of a warp.
inline constexpr unsigned whole_warp = 0xffffffffu;

}  // namespace detail

/// What lanes of the warp wrote before this call, all of them see after it.
__device__ __forceinline__ void sync_warp() {
  __syncwarp();
}
/// The value of the lane `lane`.
template <class T>
[[nodiscard]] __device__ __forceinline__ T shuffle(T value, int lane) {
  return __shfl_sync(detail::whole_warp, value, lane);
}
/// The value of the lane whose index differs from this one's in the bits of `mask`.
template <class T>
[[nodiscard]] __device__ __forceinline__ T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(detail::whole_warp, value, mask);
}
/// The value of the lane `distance` below; the lowest lanes have their own.
template <class T>
[[nodiscard]] __device__ __forceinline__ T shuffle_up(T value, unsigned distance) {
  return __shfl_up_sync(detail::whole_warp, value, distance);
}
/// Lane 0's value. The compiler knows then that it is the same in all lanes and can keep it in uniform registers.
template <class T>
[[nodiscard]] __device__ __forceinline__ T uniform(T value) {
  return __shfl_sync(detail::whole_warp, value, 0);
}

/// Transposes words among each four lanes: word i of lane j becomes word j of lane i.
__device__ __forceinline__ void transpose_of_four(std::uint32_t (&words)[4]) {
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    bool const is_upper = (threadIdx.x & static_cast<unsigned>(distance)) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) == 0) {
        std::uint32_t const given = is_upper ? words[i] : words[i + distance];
        std::uint32_t const got = shuffle_xor(given, distance);
        (is_upper ? words[i] : words[i + distance]) = got;
      }
    }
  }
}

/// Whether `vote` is true for a lane.
[[nodiscard]] __device__ __forceinline__ bool any_of_warp(bool vote) {
  return __any_sync(detail::whole_warp, vote) != 0;
}
/// Whether `vote` is true for all lanes.
[[nodiscard]] __device__ __forceinline__ bool all_of_warp(bool vote) {
  return __all_sync(detail::whole_warp, vote) != 0;
}
/// The votes of all lanes; bit i is lane i's.
[[nodiscard]] __device__ __forceinline__ std::uint32_t ballot_of_warp(bool vote) {
  return __ballot_sync(detail::whole_warp, vote);
}

/// The sum of all lanes' values.
[[nodiscard]] __device__ __forceinline__ unsigned sum_of_warp(unsigned value) {
  return __reduce_add_sync(detail::whole_warp, value);
}
/// The largest of all lanes' values.
template <class T>
[[nodiscard]] __device__ __forceinline__ T largest_of_warp(T value) {
  static_assert(sizeof(T) == 4, "tessera: the largest of a warp is that of integers of 32 bits");
  return __reduce_max_sync(detail::whole_warp, value);
}
/// The bits that are set in any lane's value.
[[nodiscard]] __device__ __forceinline__ unsigned bits_of_warp(unsigned value) {
  return __reduce_or_sync(detail::whole_warp, value);
}

}  // namespace v0
}  // namespace tessera
