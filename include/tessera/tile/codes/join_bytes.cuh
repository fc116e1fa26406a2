// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// permute_bytes() and choose_bits() for CUDA threads. The compiler makes two instructions of each by itself.
#pragma once

#include <cstdint>

#include <tessera/tile/codes/join_bytes.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {

/// The same for a lane of CUDA.
template <CudaLanes G>
__device__ __forceinline__ std::uint32_t permute_bytes(G const&, std::uint32_t a, std::uint32_t b,
                                                       std::uint32_t selector) {
  return pick_bytes(a, b, selector);
}
/// The same for a lane of CUDA.
template <CudaLanes G>
__device__ __forceinline__ std::uint32_t choose_bits(G const&, std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  return select_bits(mask, a, b);
}

}  // namespace v0
}  // namespace tessera
