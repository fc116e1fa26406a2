// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `warpgroup_lead`: keeps one of two warpgroups that multiply pieces out of one ring some pieces ahead of the other, so
/// that their epilogues do not fall together: one has the tensor cores while the other is in its epilogue (sm_90a).
///
///     if (thread == 0) { led.init(4); }                 // a shared_barrier; a warp each arrives
///     warpgroup_lead<3, 4> lead;                        // 3 pieces, of a ring of 4
///     lead.follow(led, warpgroup, pieces);              // before a tile
///     lead.go_ahead(led, warpgroup, pieces, begun);     // with `begun` of its pieces begun
#pragma once

#include <cstdint>

#include <tessera/tile/cuda/barrier.cuh>

namespace tessera {
inline namespace v0 {

/// The second warpgroup begins a tile when the first has begun with `Lead` pieces of it. Tiles of fewer pieces than the
/// ring has are left out: with others the first cannot be two leads ahead, which a barrier could not tell from none.
template <int Lead, int Stages>
struct warpgroup_lead {
  static_assert(Lead >= 0 && Lead <= Stages, "tessera: a warpgroup cannot lead by more pieces than there are");
  unsigned phase = 0;

  __device__ __forceinline__ void go_ahead(shared_barrier& led, int warpgroup, std::int32_t pieces,
                                           std::int32_t begun) const {
    if constexpr (Lead > 0) {
      if (warpgroup == 0 && begun == Lead && pieces >= Stages) {
        if (threadIdx.x % 32 == 0) {
          led.arrive();
        }
        __syncwarp();
      }
    }
  }
  __device__ __forceinline__ void follow(shared_barrier& led, int warpgroup, std::int32_t pieces) {
    if constexpr (Lead > 0) {
      if (warpgroup == 1 && pieces >= Stages) {
        led.wait(phase);
        phase ^= 1;
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
