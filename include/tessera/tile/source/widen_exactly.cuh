// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// widen_exactly() for CUDA threads, by masks and additions of pairs: 11 instructions for eight codes of 4 bits, 7 for
/// four of 8 bits.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/pairs.cuh>
#include <tessera/tile/source/widen_exactly.hpp>

namespace tessera {
inline namespace v0 {

/// The same for a lane of CUDA. A code, made unsigned by its highest bit, becomes the low bits of a float whose step is
/// 1: 128 + 8 + code in bf16, 1024 + 8 + code or 1024 + 128 + code in fp16. bf16 holds only 7 bits of an 8-bit code
/// beside 128, from which 128 or, for negative codes, 256 are subtracted: 128 with another bit for the exponent.
template <class Value, int Bits, CudaLanes G>
__device__ __forceinline__ void widen_exactly(G const&, std::uint32_t word, std::uint32_t (&pairs)[16 / Bits]) {
  constexpr bool is_bf16 = std::is_same_v<Value, bfloat16>;
  static_assert(is_bf16 || std::is_same_v<Value, float16>, "tessera: codes are widened to bf16 or fp16");
#pragma unroll
  for (int i = 0; i < 16 / Bits; ++i) {
    std::uint32_t const moved = word >> (Bits * i);
    if constexpr (Bits == 4 && is_bf16) {
      pairs[i] = multiply_add_bf16x2(mask_and_flip(moved, 0x000f000fU, 0x43084308U), 0x3f803f80U, 0xc308c308U);
    } else if constexpr (Bits == 4) {
      pairs[i] = multiply_add_f16x2(mask_and_flip(moved, 0x000f000fU, 0x64086408U), 0x3c003c00U, 0xe408e408U);
    } else if constexpr (is_bf16) {
      pairs[i] = multiply_add_bf16x2(mask_and_flip(moved, 0x00800080U, 0x43004300U), 0xbf80bf80U,
                                     mask_and_flip(moved, 0x007f007fU, 0x43004300U));
    } else {
      pairs[i] = multiply_add_f16x2(mask_and_flip(moved, 0x00ff00ffU, 0x64806480U), 0x3c003c00U, 0xe480e480U);
    }
  }
}

}  // namespace v0
}  // namespace tessera
