// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The widen_int4() of groups of CUDA threads: the values of tile/source/int4_codes.hpp in about half of the
/// instructions.
#pragma once

#include <cstdint>

#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/source/int4_codes.hpp>

namespace tessera {
inline namespace v0 {

/// Widens two codes at a time: each becomes the low byte of a bf16 whose high byte makes it 128 + 8 + code; then 136 is
/// subtracted.
template <CudaLanes G>
__device__ __forceinline__ tile_chunk<bfloat16> widen_int4(G const&, std::uint32_t codes) {
  std::uint32_t const flipped = codes ^ 0x88888888U;
  std::uint32_t const even = flipped & 0x0f0f0f0fU;
  std::uint32_t const odd = (flipped >> 4) & 0x0f0f0f0fU;
  tile_chunk<bfloat16> values;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t const four = __byte_perm(even, odd, i < 2 ? 0x5140 : 0x7362);
    std::uint32_t pair = __byte_perm(four, 0x43U, i % 2 == 0 ? 0x4140 : 0x4342);
    asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pair) : "r"(0x3f803f80U), "r"(0xc308c308U));
    values.values[2 * i] = bfloat16{static_cast<std::uint16_t>(pair)};
    values.values[2 * i + 1] = bfloat16{static_cast<std::uint16_t>(pair >> 16)};
  }
  return values;
}

}  // namespace v0
}  // namespace tessera
