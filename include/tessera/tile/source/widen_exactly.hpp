// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `widen_exactly`: 32 bits of signed integer codes of 4 or 8 bits as pairs of bf16 or fp16, which hold them exactly.
///
///     std::uint32_t pairs[4];
///     widen_exactly<bfloat16, 4>(group, word, pairs);     // pair i: code i low, code i + 4 high
///
/// Pairs are of codes half a word apart, because masks alone find those. widen_int4 (tile/source/int4_codes.hpp) keeps
/// neighbours together.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {

/// Widens the 32 / Bits codes of a word. Groups of CUDA threads have faster arithmetic for it:
/// tile/source/widen_exactly.cuh.
template <class Value, int Bits, class G>
TESSERA_FN constexpr void widen_exactly(G const&, std::uint32_t word, std::uint32_t (&pairs)[16 / Bits]) {
  static_assert(Bits == 4 || Bits == 8, "tessera: codes have 4 or 8 bits");
  static_assert(is_16_bit_float<Value>, "tessera: codes are widened to bf16 or fp16");
  constexpr int count = 16 / Bits;
  for (int i = 0; i < count; ++i) {
    std::uint32_t halves[2] = {};
    for (int half = 0; half < 2; ++half) {
      int const at = Bits * (i + half * count);
      int const code = static_cast<std::int32_t>(word << (32 - Bits - at)) >> (32 - Bits);
      halves[half] = bit_cast<std::uint16_t>(tessera::store<Value>(static_cast<float>(code)));
    }
    pairs[i] = halves[0] | halves[1] << 16;
  }
}

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/source/widen_exactly.cuh>
#endif
