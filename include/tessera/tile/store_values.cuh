// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// store_values() for CUDA threads: two values become 16-bit floats by one instruction.
#pragma once

#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/store_values.hpp>

namespace tessera {
inline namespace v0 {

/// The same for a lane of CUDA, with one conversion for two values.
template <class Value, CudaLanes G>
requires is_16_bit_float<Value> __device__ __forceinline__ void store_values(G const&, float const (&values)[8],
                                                                             bool is_inside, tile_chunk<Value>& to) {
  std::uint32_t const mask = is_inside ? ~0U : 0U;  // a choice for each pair would become a branch for each
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[i] = pack_pair<Value>(values[2 * i], values[2 * i + 1]) & mask;
  }
  *reinterpret_cast<uint4*>(&to) = uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
}

}  // namespace v0
}  // namespace tessera
