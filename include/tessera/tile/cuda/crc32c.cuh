// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// CRC-32C of a few bytes, computed by one warp.
#pragma once

#include <cstdint>

#include <tessera/core/crc32c.hpp>

namespace tessera {
inline namespace v0 {

/// The checksum of `Pieces` (at most 32) pieces of `Bytes` bytes each, for all lanes. Each lane sums one piece. Then
/// neighbours are combined five times by constants: about 1,000 instructions.
template <int Bytes, int Pieces>
__device__ __forceinline__ std::uint32_t warp_crc32c(int lane, std::uint8_t const* data) {
  static_assert(Pieces <= 32, "tessera: a warp has 32 lanes");
  int const piece = lane - (32 - Pieces);  // lanes before the first piece have the checksum of no bytes, 0
  std::uint32_t checksum = piece >= 0 ? crc32c(data + piece * Bytes, Bytes) : 0;
  constexpr std::uint32_t factor[5] = {crc32c_factor(Bytes), crc32c_factor(2 * Bytes), crc32c_factor(4 * Bytes),
                                       crc32c_factor(8 * Bytes), crc32c_factor(16 * Bytes)};
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    // Lanes whose number ends in i + 1 ones hold the sum of their 2^(i+1) pieces afterwards.
    std::uint32_t const front = __shfl_up_sync(0xffffffffu, checksum, 1u << i);
    checksum = (lane & ((2 << i) - 1)) == (2 << i) - 1 ? crc32c_combine_with(front, checksum, factor[i]) : checksum;
  }
  return __shfl_sync(0xffffffffu, checksum, 31);
}

}  // namespace v0
}  // namespace tessera
