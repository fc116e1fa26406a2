// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `float_attention_weights`: attention_weights (attention/detail/forward_softmax.cuh) of scores that are floats, sums
/// of products of e4m3 codes as tensor cores make them.
///
/// Instructions for each score: half a maximum of three integers, a multiply-add, and those of lane_weights: half a
/// conversion for piecewise_linear_softmax, an exponential and half a conversion for online_softmax. That is one less
/// than for integers, of which an addition makes floats. Bits of positive floats have the order of the floats, and
/// those of negative floats the opposite order: the largest integer is the largest score unless all 32 scores of a lane
/// and a row are negative. Where that is so for a lane of the warp, the smallest integers are found as well, half an
/// instruction a score. In masked tiles it mostly is so, and maxima are those of floats, two at a time. Tensor cores
/// make NaNs with the bits 0x7fffffff, the largest integer.
///
/// Scores are below 448^2 times the channels, 2^25.7 for 256, so that logits of scales below most_scale are below
/// 131072. References are then so exact that rounding moves weights by a tenth of a step. With other scales references
/// are subtracted from logits first, two instructions more.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/program/attention/detail/forward_rows.cuh>
#include <tessera/tile/cuda/sm_90/largest_of_three.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// The softmax of rows lane / 4 and lane / 4 + 8 of a warp. Softmax: one with lane_weights.
template <class Softmax>
struct float_attention_weights : attention_rows<Softmax> {
  using rows = attention_rows<Softmax>;  ///< what it shares with scores of integers
  using rows::registers;
  using typename rows::weights;
  /// Sums of products do not begin at terms: those of 8-bit floats keep 13 bits below the largest addend.
  static constexpr bool begins_at_terms = false;
  /// From this scale on tile_scales are `any`.
  template <bool HasTerms>
  static constexpr float most_scale = 1.0F / 512.0F;

  /// As attention_weights::take().
  template <tile_mask Mask, tile_scales Scales>
  __device__ __forceinline__ void take(float (&scores)[registers], float scale, key_limits const& limits, bool is_first,
                                       float (&factor)[2]) {
    std::int32_t bits[registers];
    as_bits(scores, bits);
    if constexpr (Mask != tile_mask::none) {
      rows::template hide<Mask>(bits, limits, __float_as_int(-infinity));
    }
    refer<Mask, Scales>(bits, scale, factor);
    if constexpr (Mask != tile_mask::none) {
      scale = fmaxf(scale, 1e-37F);  // times minus infinity it is not NaN
    }
    float const before[2] = {this->template reference_or_zero<Mask>(0), this->template reference_or_zero<Mask>(1)};
    weigh<Scales>(bits, scale, before);
    if constexpr (weights::has_low_line) {
      if (is_first) {
        rows::take_low_line(bits);
      }
    }
    as_floats(bits, scores);
  }
  /// The same with terms.
  template <tile_mask Mask, tile_scales Scales>
  __device__ __forceinline__ void take(float (&scores)[registers], float scale, row_terms const& terms,
                                       key_limits const& limits, bool is_first, float (&factor)[2]) {
    float const slope = weights::steps * scale;
    float const of_term = weights::steps * terms.to_base_2;
    float const addend[2] = {__fmaf_rn(terms.base[0], of_term, rows::lift),
                             __fmaf_rn(terms.base[1], of_term, rows::lift)};
    std::int32_t bits[registers];
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      float const added = __fmaf_rn(terms.of_score[i], of_term, addend[i / 2 % 2]);
      bits[i] = __float_as_int(__fmaf_rn(slope, scores[i], added));
    }
    this->template take_lifted<Mask>(bits, limits, is_first, factor);
    as_floats(bits, scores);
  }
  /// As attention_rows::pack().
  __device__ __forceinline__ static void pack(float const (&taken)[registers],
                                              std::uint32_t (&packed)[registers / 16][4]) {
    std::int32_t bits[registers];
    as_bits(taken, bits);
    rows::pack(bits, packed);
  }

 private:
  __device__ __forceinline__ static void as_bits(float const (&from)[registers], std::int32_t (&to)[registers]) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      to[i] = __float_as_int(from[i]);
    }
  }
  __device__ __forceinline__ static void as_floats(std::int32_t const (&from)[registers], float (&to)[registers]) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      to[i] = __int_as_float(from[i]);
    }
  }

  /// Finds the tile's references, and the factors of earlier sums.
  template <tile_mask Mask, tile_scales Scales>
  __device__ __forceinline__ void refer(std::int32_t const (&scores)[registers], float scale, float (&factor)[2]) {
    constexpr bool is_masked = Mask != tile_mask::none;
    float most[2];
    find_largest<is_masked>(scores, most);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float here = scale * most[row];
      if constexpr (Scales == tile_scales::any) {
        here = __fmaf_rn(here, 0.0F, here);  // infinity becomes NaN
      }
      if constexpr (is_masked) {
        here = most[row] == -infinity ? -infinity : here;
      }
      this->template refer_row<is_masked>(row, here, factor);
    }
  }
  /// Finds the largest score of each row. Lanes from which all keys are hidden have no positive score, so that maxima
  /// of floats are the shorter way for masked tiles.
  template <bool IsMasked>
  __device__ __forceinline__ static void find_largest(std::int32_t const (&scores)[registers], float (&most)[2]) {
    if constexpr (IsMasked) {
      most[0] = rows::largest_float(scores, 0);
      most[1] = rows::largest_float(scores, 1);
    } else {
      std::int32_t bits[2] = {rows::largest_of_row(scores, 0), rows::largest_of_row(scores, 1)};
      if (any_of_warp((bits[0] | bits[1]) < 0)) {
        bits[0] = bits[0] < 0 ? smallest_of_row(scores, 0) : bits[0];
        bits[1] = bits[1] < 0 ? smallest_of_row(scores, 1) : bits[1];
      }
      most[0] = __int_as_float(bits[0]);
      most[1] = __int_as_float(bits[1]);
    }
  }
  /// The smallest of a row's scores as integers: the largest score where all are negative.
  __device__ __forceinline__ static std::int32_t smallest_of_row(std::int32_t const (&scores)[registers], int row) {
    std::int32_t least = scores[2 * row];
#pragma unroll
    for (int i = 2 * row; i < registers; i += 4) {
      least = smallest_of_three(least, scores[i], scores[i + 1]);
    }
    return least;
  }

  /// Turns scores into weights::of() of their logits' distance to the references.
  template <tile_scales Scales>
  __device__ __forceinline__ static void weigh(std::int32_t (&scores)[registers], float scale,
                                               float const (&before)[2]) {
    float const slope = weights::steps * scale;
    float const addend[2] = {__fmaf_rn(-weights::steps, before[0], weights::top),
                             __fmaf_rn(-weights::steps, before[1], weights::top)};
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      float const score = __int_as_float(scores[i]);
      if constexpr (Scales == tile_scales::any) {
        float const logit = __fmul_rn(scale, score);  // rounded as the reference is
        scores[i] = __float_as_int(weights::of(__fmaf_rn(weights::steps, logit - before[i / 2 % 2], weights::top)));
      } else {
        scores[i] = __float_as_int(weights::of(__fmaf_rn(score, slope, addend[i / 2 % 2])));
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
