// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `cap_sums`: caps sums in registers, for the loss's programs on sm_90a. Forward and backward pass cap alike, so that
/// their logits agree.
#pragma once

#include <tessera/tile/cuda/exponential.cuh>

namespace tessera {
inline namespace v0 {

/// Makes cap * tanh(sum / cap) of each sum, by one exponential and one reciprocal: within 5e-7 of the cap. A cap of 0
/// leaves sums as they are. Minus infinities become -cap, and a NaN stays.
template <int Registers>
__device__ __forceinline__ void cap_sums(float (&sums)[Registers], float cap) {
  constexpr float twice_log2_e = 2.885390082F;
  if (cap > 0.0F) {
    float const factor = twice_log2_e * fast_reciprocal(cap);
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      sums[i] = cap - 2.0F * cap * fast_reciprocal(fast_exp2(sums[i] * factor) + 1.0F);
    }
  }
}

}  // namespace v0
}  // namespace tessera
