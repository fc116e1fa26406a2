// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `permute_bytes` and `choose_bits`: words made of parts of two words, in one instruction on a GPU.
///
///     std::uint32_t const woven = permute_bytes(group, even, odd, 0x5140);        // even 0, odd 0, even 1, odd 1
///     std::uint32_t const signed_by = choose_bits(group, 0x80808080, signs, values);
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Nibble i of `selector`, from 0 to 7, says which byte (0 to 3 of a, 4 to 7 of b) becomes byte i. Groups of CUDA
/// threads have an instruction for it: tile/codes/join_bytes.cuh.
template <class G>
TESSERA_FN constexpr std::uint32_t permute_bytes(G const&, std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  std::uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    std::uint32_t const which = (selector >> (4 * i)) & 7U;
    std::uint32_t const from = which < 4 ? a : b;
    picked |= ((from >> (8 * (which % 4))) & 255U) << (8 * i);
  }
  return picked;
}
/// The bits of a where the mask is set, else those of b. Groups of CUDA threads have an instruction for it.
template <class G>
TESSERA_FN constexpr std::uint32_t choose_bits(G const&, std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  return (a & mask) | (b & ~mask);
}

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/codes/join_bytes.cuh>
#endif
