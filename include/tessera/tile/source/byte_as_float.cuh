// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// byte_as_float() for CUDA threads: one instruction puts a byte among those of another word.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/source/byte_as_float.hpp>

namespace tessera {
inline namespace v0 {

/// The same for a lane of CUDA.
template <CudaLanes G>
__device__ __forceinline__ float byte_as_float(G const&, std::uint32_t word, int which) {
  return bit_cast<float>(pick_bytes(0x4b000000U, word, 0x3004U + static_cast<std::uint32_t>(which)));
}

}  // namespace v0
}  // namespace tessera
