// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `ring_place`: where in a ring of pieces in shared memory somebody is, and the parity that its barriers have there
/// (barrier.cuh). Producers and consumers each have one and count alike.
///
///     ring_place<4> place;
///     full[place.stage].wait(place.phase);          // a consumer; a producer waits for empty[] and the other parity
///     place.advance();
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

template <int Stages>
struct ring_place {
  int stage = 0;       ///< of the ring, 0 to Stages - 1
  unsigned phase = 0;  ///< parity of the stage's barrier

  /// To the next stage.
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1;
    }
  }
  /// So many at once.
  __device__ __forceinline__ void skip(std::int32_t pieces) {
    std::int32_t const beyond = stage + pieces;
    phase ^= static_cast<unsigned>(beyond / Stages) & 1U;
    stage = beyond % Stages;
  }
  /// The same as if all lanes of a warp had it: then descriptors are kept in registers of the warp.
  __device__ __forceinline__ void agree() {
    stage = __shfl_sync(0xffffffffU, stage, 0);
    phase = __shfl_sync(0xffffffffU, phase, 0);
  }
};

}  // namespace v0
}  // namespace tessera
