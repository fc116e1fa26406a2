// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `relative_sums`: sums of a softmax's weights and of values times these, of a part of a row that a warp has in shared
/// memory, and how a lane merges those of several warps. merge_factors() of online_softmax does the same where denormal
/// factors count, which a lane here flushes to zero.
#pragma once

#include <tessera/core/math.hpp>
#include <tessera/tile/cuda/exponential.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Channels: how many channels of the values a lane has.
template <int Channels>
struct relative_sums {
  static constexpr float no_reference = -3.0e38F;  ///< below all finite scores; its difference to itself is 0

  float reference;  ///< what scores are relative to, in base 2: no_reference or minus infinity before the first one
  float sum;        ///< the sum of weights, 2^(score - reference)
  float totals[Channels];

  /// Merges part(0) to part(Parts - 1), in order, relative to the largest of their references. part(i) gives
  /// relative_sums. The reference of a row that has no weights becomes minus infinity.
  template <int Parts, class Part>
  __device__ __forceinline__ static relative_sums join(Part const& part) {
    relative_sums all{no_reference, 0.0F, {}};
#pragma unroll
    for (int i = 0; i < Parts; ++i) {
      all.reference = fmaxf(all.reference, part(i).reference);
    }
#pragma unroll
    for (int i = 0; i < Parts; ++i) {
      relative_sums const one = part(i);
      float const factor = fast_exp2(one.reference - all.reference);
      all.sum = __fmaf_rn(factor, one.sum, all.sum);
#pragma unroll
      for (int channel = 0; channel < Channels; ++channel) {
        all.totals[channel] = __fmaf_rn(factor, one.totals[channel], all.totals[channel]);
      }
    }
    all.reference = all.sum == 0.0F ? -infinity : all.reference;
    return all;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
