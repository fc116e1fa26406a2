// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `lane_weights`: makes e4m3 codes of the weights of a softmax, in a lane of a CUDA device. Softmaxes that have a
/// specialisation run in the programs for sm_90.
///
///     float const t = __fmaf_rn(weights::steps, logit - reference, weights::top);   // logits in base 2
///     std::uint32_t const codes = weights::pack(weights::of(t), ...);               // of four logits
#pragma once

#include <cstdint>

#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>

namespace tessera {
inline namespace v0 {

/// Codes of four weights, and what they add up to.
struct four_weights {
  std::uint32_t codes;  ///< codes of the four weights, the first in the lowest byte
  float sum;            ///< sum of the weights as log-sum-exps count them; NaN if one is NaN
};

template <class Softmax>
struct lane_weights;

/// The weights of online_softmax: 448 times the exponential, rounded to e4m3. Log-sum-exps count exponentials before
/// they are rounded.
template <>
struct lane_weights<online_softmax<float>> {
  static constexpr float steps = 1.0F;            ///< units of of()'s argument for a power of two
  static constexpr float top = 8.807354922F;      ///< log2 of 448, the argument of the largest weight
  static constexpr float exact_steps = 16384.0F;  ///< of()'s argument may be rounded to one part in so many
  static constexpr bool has_low_line = false;     ///< exponentials need no low line
  /// 448 times the weight of a logit.
  __device__ __forceinline__ static float of(float logit) { return fast_exp2(logit); }
  /// Codes of four weights.
  __device__ __forceinline__ static std::uint32_t pack(float a, float b, float c, float d) {
    return pack_four_e4m3(a, b, c, d);
  }
  /// The weights of scores `scale` * `sums`; a sum of minus infinity is masked. `is_first`: the keys are in their
  /// sequence's first tile.
  __device__ __forceinline__ static four_weights weigh(float reference, float scale, float const (&sums)[4],
                                                       bool /*is_first*/) {
    constexpr float highest = 448.0F;
    float const before = reference == -infinity ? 0.0F : reference;
    float weights[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weights[i] = sums[i] == -infinity ? 0.0F : fast_exp2(scale * sums[i] - before);  // codes of denormal ones are 0
    }
    return {pack(weights[0] * highest, weights[1] * highest, weights[2] * highest, weights[3] * highest),
            (weights[0] + weights[1]) + (weights[2] + weights[3])};
  }
};

/// The weights of piecewise_linear_softmax: the logit is a line of the code, which is rounded to an integer.
/// Log-sum-exps count what codes stand for.
template <>
struct lane_weights<piecewise_linear_softmax> {
  static constexpr float steps = piecewise_linear_softmax::codes_in_power_of_two;  ///< codes for a power of two
  static constexpr float top = piecewise_linear_softmax::top_code;                 ///< code of the largest weight
  static constexpr float exact_steps = 1.0F;                                       ///< codes are integers in the end
  static constexpr bool has_low_line = true;  ///< a sequence's first tile has a second line for small weights
  /// The code before it is rounded.
  __device__ __forceinline__ static float of(float code) { return code; }
  /// Rounds and packs four codes.
  __device__ __forceinline__ static std::uint32_t pack(float a, float b, float c, float d) {
    return pack_four_integers(a, b, c, d);
  }
  /// The weights of scores `scale` * `sums`; a sum of minus infinity is masked. `is_first`: the keys are in their
  /// sequence's first tile.
  __device__ __forceinline__ static four_weights weigh(float reference, float scale, float const (&sums)[4],
                                                       bool is_first) {
    constexpr float of_top = 1.0F / 448.0F;
    float codes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float const line =
          sums[i] == -infinity ? -infinity : piecewise_linear_softmax::position(scale, sums[i], reference);
      codes[i] = is_first ? piecewise_linear_softmax::low_line(line) : line;
    }
    std::uint32_t const four = pack(codes[0], codes[1], codes[2], codes[3]);
    uint2 const pairs = unpack_four_e4m3(four);
    float2 const first = unpack_pair<float16>(pairs.x);
    float2 const second = unpack_pair<float16>(pairs.y);
    float const most = maximum_or_nan(maximum_or_nan(codes[0], codes[1]), maximum_or_nan(codes[2], codes[3]));
    return {four, is_nan(most) ? most : of_top * ((first.x + first.y) + (second.x + second.y))};
  }
};

}  // namespace v0
}  // namespace tessera
