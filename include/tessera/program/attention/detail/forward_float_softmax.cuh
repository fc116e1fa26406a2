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
#include <tessera/reduce/maximum.hpp>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// The smallest of integers, three by one instruction.
struct smallest_integer_reducer {
  using state_type = std::int32_t;
  using input_type = std::int32_t;
  static constexpr bool any_order = true;  ///< values may come in any order

  __device__ __forceinline__ std::int32_t identity() const { return 0x7fffffff; }
  /// Takes a value.
  __device__ __forceinline__ void push(std::int32_t& state, std::int32_t value) const { state = min(state, value); }
  /// Takes another state.
  __device__ __forceinline__ void merge(std::int32_t& into, std::int32_t other) const { push(into, other); }
  /// The smaller of two values.
  __device__ __forceinline__ std::int32_t of_pair(std::int32_t first, std::int32_t second) const {
    return min(first, second);
  }
  /// Takes two values at a time.
  __device__ __forceinline__ void push_pair(std::int32_t& state, std::int32_t first, std::int32_t second) const {
    state = min(min(state, first), second);
  }
};

/// The softmax of a lane's rows. Softmax: one with lane_weights.
template <class Softmax>
struct float_attention_weights : attention_rows<Softmax> {
  using rows = attention_rows<Softmax>;  ///< what it shares with scores of integers
  using typename rows::bits_type, typename rows::operands_type, typename rows::weights;
  using scores_type = score_floats::sum_tile;  ///< scores of a tile, as floats
  /// A value for each row.
  template <class Value>
  using row_values = score_row_values<Value>;
  /// Sums of products do not begin at terms: those of 8-bit floats keep 13 bits below the largest addend.
  static constexpr bool begins_at_terms = false;
  /// From this scale on tile_scales are `any`.
  template <bool HasTerms>
  static constexpr float most_scale = 1.0F / 512.0F;

  /// As attention_weights::take(). HasBegun: false.
  template <tile_mask Mask, tile_scales Scales, bool HasBegun>
  __device__ __forceinline__ void take(scores_type& scores, float scale, key_limits const& limits, bool is_first,
                                       row_values<float>& factor) {
    static_assert(!HasBegun, "tessera: sums of e4m3 products are floats, which begin at zero");
    bits_type bits;
    as_bits(scores, bits);
    rows::template hide<Mask>(bits, limits, __float_as_int(-infinity));
    refer<Mask, Scales>(bits, scale, factor);
    if constexpr (Mask != tile_mask::none) {
      scale = fmaxf(scale, 1e-37F);  // times minus infinity it is not NaN
    }
    weigh<Mask, Scales>(bits, scale);
    if constexpr (weights::has_low_line) {
      if (is_first) {
        rows::take_low_line(bits);
      }
    }
    as_floats(bits, scores);
  }
  /// The same with terms.
  template <tile_mask Mask, tile_scales Scales>
  __device__ __forceinline__ void take(scores_type& scores, float scale, row_terms const& terms,
                                       key_limits const& limits, bool is_first, row_values<float>& factor) {
    float const slope = weights::steps * scale;
    float const of_term = weights::steps * terms.to_base_2;
    row_values<float> const addend =
        rows::of_rows([=](float base) { return __fmaf_rn(base, of_term, rows::lift); }, terms.base);
    score_floats::each_with_both<score_floats>(
        rows::lane(), terms.of_score, scores,
        [=](int, int, float term, float& score, float of_row) {
          score = __fmaf_rn(slope, score, __fmaf_rn(term, of_term, of_row));
        },
        addend);
    bits_type bits;
    as_bits(scores, bits);
    this->template take_lifted<Mask>(bits, limits, is_first, factor);
    as_floats(bits, scores);
  }
  /// As attention_rows::pack().
  __device__ __forceinline__ static void pack(scores_type const& taken, operands_type& packed) {
    bits_type bits;
    as_bits(taken, bits);
    rows::pack(bits, packed);
  }

 private:
  __device__ __forceinline__ static void as_bits(scores_type const& from, bits_type& to) {
    score_floats::map_sums<score_words>(rows::lane(), from, to,
                                        [](int, int, float score) { return __float_as_int(score); });
  }
  __device__ __forceinline__ static void as_floats(bits_type const& from, scores_type& to) {
    score_words::map_sums<score_floats>(rows::lane(), from, to,
                                        [](int, int, std::int32_t bits) { return __int_as_float(bits); });
  }

  /// Finds the tile's references, and the factors of earlier sums.
  template <tile_mask Mask, tile_scales Scales>
  __device__ __forceinline__ void refer(bits_type const& scores, float scale, row_values<float>& factor) {
    constexpr bool is_masked = Mask != tile_mask::none;
    row_values<float> most;
    find_largest<is_masked>(scores, most);
    row_values<float> here = rows::of_rows(
        [scale](float score) {
          float logit = scale * score;
          if constexpr (Scales == tile_scales::any) {
            logit = __fmaf_rn(logit, 0.0F, logit);  // infinity becomes NaN
          }
          return is_masked && score == -infinity ? -infinity : logit;
        },
        most);
    this->template refer_rows<is_masked>(here, factor);
  }
  /// Finds the largest score of each row. Lanes from which all keys are hidden have no positive score, so that maxima
  /// of floats are the shorter way for masked tiles.
  template <bool IsMasked>
  __device__ __forceinline__ static void find_largest(bits_type const& scores, row_values<float>& most) {
    if constexpr (IsMasked) {
      score_words::fold_lanes(rows::lane(), largest_of_bits_reducer{}, scores, most);
    } else {
      row_values<std::int32_t> bits;
      score_words::fold_lanes(rows::lane(), maximum_reducer<std::int32_t>{}, scores, bits);
      std::int32_t signs = 0;
      score_words::each_row(
          rows::lane(), [&](int, std::int32_t largest) { signs |= largest; }, bits);
      if (any_of_warp(signs < 0)) {
        row_values<std::int32_t> smallest;
        score_words::fold_lanes(rows::lane(), smallest_integer_reducer{}, scores, smallest);
        score_words::each_row(
            rows::lane(),
            [](int, std::int32_t& largest, std::int32_t least) { largest = largest < 0 ? least : largest; }, bits,
            smallest);
      }
      most = rows::of_rows([](std::int32_t largest) { return __int_as_float(largest); }, bits);
    }
  }

  /// Turns scores into weights::of() of their logits' distance to the references.
  template <tile_mask Mask, tile_scales Scales>
  __device__ __forceinline__ void weigh(bits_type& scores, float scale) const {
    row_values<float> const before = rows::of_rows(
        [](attention_row_state const& row) { return row.template reference_or_zero<Mask>(); }, this->state);
    if constexpr (Scales == tile_scales::any) {
      rows::each_float(
          scores,
          [scale](float score, float reference) {
            float const logit = __fmul_rn(scale, score);  // rounded as the reference is
            return weights::of(__fmaf_rn(weights::steps, logit - reference, weights::top));
          },
          before);
    } else {
      float const slope = weights::steps * scale;
      row_values<float> const addend =
          rows::of_rows([](float reference) { return __fmaf_rn(-weights::steps, reference, weights::top); }, before);
      rows::each_float(
          scores, [slope](float score, float added) { return weights::of(__fmaf_rn(score, slope, added)); }, addend);
    }
  }
};

}  // namespace v0
}  // namespace tessera
