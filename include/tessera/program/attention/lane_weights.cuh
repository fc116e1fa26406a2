// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `lane_weights`: makes e4m3 codes of the weights of a softmax, in a lane of a CUDA device. Softmaxes that have a
/// specialisation run in the programs for sm_90.
///
///     using weights = lane_weights<piecewise_linear_softmax>;
///     auto const weight_of = [=](float logit) {                                     // in base 2
///       return weights::of(__fmaf_rn(weights::steps, logit - reference, weights::top));
///     };
///     std::uint32_t const codes = weights::pack(weight_of(a), weight_of(b), weight_of(c), weight_of(d));
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

/// Sums of products of codes, as tensor cores make them: integers of magnitude below 2^22.
struct score_sums {
  static constexpr std::int32_t magic_bits = 0x4b400000;  ///< the bits of piecewise_linear_softmax::integer_magic
  /// The sum of a hidden key: less than all others; with magic_bits added, the bits of minus infinity.
  static constexpr std::int32_t hidden = -1270874112;
  /// The middle of the floats at whose bits sums may begin: sums of magnitude below 2^21 leave the exponent as it is.
  static constexpr float begin_center = 13631488.0F;

  /// A sum as a float, integer_magic more than it is; minus infinity for a hidden key.
  __device__ __forceinline__ static float plus_magic(std::int32_t sum) { return __int_as_float(sum + magic_bits); }
};

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
  /// The weights of scores `scale` * `sums`, which may be hidden. `is_first`: the keys are in their sequence's first
  /// tile.
  __device__ __forceinline__ static four_weights weigh(float reference, float scale, std::int32_t const (&sums)[4],
                                                       bool /*is_first*/) {
    constexpr float highest = 448.0F;
    float const before = reference == -infinity ? 0.0F : reference;
    float weights[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float const logit = __fmul_rn(scale, static_cast<float>(sums[i]));              // rounded as the reference is
      weights[i] = sums[i] == score_sums::hidden ? 0.0F : fast_exp2(logit - before);  // codes of denormal ones are 0
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
  /// The weights of scores `scale` * `sums`, which may be hidden. `is_first`: the keys are in their sequence's first
  /// tile.
  __device__ __forceinline__ static four_weights weigh(float reference, float scale, std::int32_t const (&sums)[4],
                                                       bool is_first) {
    constexpr float of_top = 1.0F / 448.0F;
    float codes[4];
    float const nan = scale < piecewise_linear_softmax::most_scale ? take_small(reference, scale, sums, codes)
                                                                   : take_any(reference, scale, sums, codes);
    if (is_first) {
#pragma unroll
      for (float& code : codes) {
        code = piecewise_linear_softmax::low_line(code);
      }
    }
    std::uint32_t const four = pack(codes[0], codes[1], codes[2], codes[3]);
    uint2 const pairs = unpack_four_e4m3(four);
    float2 const first = unpack_pair<float16>(pairs.x);
    float2 const second = unpack_pair<float16>(pairs.y);
    return {four, is_nan(nan) ? nan : of_top * ((first.x + first.y) + (second.x + second.y))};
  }

 private:
  /// Makes codes by piecewise_linear_softmax::position() for scales below most_scale, one multiply-add for each. Gives
  /// NaN if they are NaN, which they are together.
  __device__ __forceinline__ static float take_small(float reference, float scale, std::int32_t const (&sums)[4],
                                                     float (&codes)[4]) {
    float const slope = steps * scale;
    bool const has_none = reference == -infinity;  // all are hidden
    float const zero = has_none ? 0.0F : piecewise_linear_softmax::zero_of(slope, reference);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // times minus infinity the slope is not NaN
      codes[i] = __fmaf_rn(fmaxf(slope, 1e-37F), score_sums::plus_magic(sums[i]), zero);
    }
    return zero;
  }
  /// Makes codes for scales of any size. Gives NaN if one of them is NaN.
  __device__ __forceinline__ static float take_any(float reference, float scale, std::int32_t const (&sums)[4],
                                                   float (&codes)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float const code = piecewise_linear_softmax::position(scale, static_cast<float>(sums[i]), reference);
      codes[i] = sums[i] == score_sums::hidden ? -infinity : code;
    }
    return maximum_or_nan(maximum_or_nan(codes[0], codes[1]), maximum_or_nan(codes[2], codes[3]));
  }
};

}  // namespace v0
}  // namespace tessera
