// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `byte_as_float`: 2^23 and a byte of a word as a float, without the instruction that converts integers, which has an
/// eighth of the rate of others on a GPU.
///
///     float const code = byte_as_float(group, word, 2) - 0x1p23F;   // the third byte, exactly
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

/// 2^23 + byte number `which` of the word. The byte is what the last bits of such a float are. Groups of CUDA threads
/// have an instruction for it: tile/source/byte_as_float.cuh.
template <class G>
TESSERA_FN constexpr float byte_as_float(G const&, std::uint32_t word, int which) {
  return bit_cast<float>(0x4b000000U | ((word >> (8 * which)) & 255U));
}

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/source/byte_as_float.cuh>
#endif
