// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_weights`: a warpgroup's online softmax over tiles of 64 queries x 128 keys. Scores are sums of products
/// of 8-bit codes in registers, as warpgroup_mma.cuh lays them out; weights become e4m3 operands.
///
/// A lane has scores of two rows that share one scale, and of keys that share another one: that is what the groups of
/// quantized queries and keys are for. So one factor c makes logits of all its scores s: log2 of a weight is c s.
///
/// Weights of a tile are relative to the row's largest logit in this tile, not to the largest so far: all tiles use all
/// of e4m3's range, however much larger earlier weights were. For tile j, with m_j its largest logit and M_j the
/// largest so far,
///
///     r_j = max(m_j, M_j - 64)        P_j = 448 2^(c s - r_j)        O_j = 2^(r_(j-1) - r_j) O_(j-1) + P_j V_j
///
/// where the bound of 64 keeps factors finite. The sum of products P_j V_j begins at zero in each tile, because tensor
/// cores keep only 13 bits of sums of 8-bit floats. O is fp32, and costs one multiply-add for an element.
///
/// Instructions for each score: an addition, which makes a float of it (1.5 2^23 + s has s in its lower bits), half a
/// maximum of three, a multiply-add that also subtracts the 1.5 2^23, and those of lane_weights: half a conversion for
/// piecewise_linear_softmax, an exponential and half a conversion for online_softmax. Where c is 1/32 or more, as where
/// products of single channels exceed 500, the 1.5 2^23 is subtracted first, because c 1.5 2^23 would be rounded too
/// coarsely. Blocks of queries that meet such a scale take tile_scales::any.
///
/// A NaN among scales, and a score beyond 3e38, make the row's factor NaN, and with it all that was added up.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/program/attention/detail/forward_rows.cuh>
#include <tessera/program/attention/lane_weights.cuh>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/cuda/exponential.cuh>

namespace tessera {
inline namespace v0 {

/// The softmax of rows lane / 4 and lane / 4 + 8 of a warp. Softmax: one with lane_weights.
template <class Softmax>
struct attention_weights : attention_rows<Softmax> {
  using rows = attention_rows<Softmax>;  ///< what it shares with scores of floats
  using rows::registers, rows::reference;
  using typename rows::weights;
  static constexpr bool begins_at_terms = true;  ///< whether sums of products may begin at terms
  /// The float whose bits, added to an integer, make a float of it.
  static constexpr float integer_magic = piecewise_linear_softmax::integer_magic;
  static constexpr std::int32_t hidden = score_sums::hidden;  ///< the score of a hidden key
  /// From this scale on tile_scales are `any`. With terms the rounding differs from key to key.
  template <bool HasTerms>
  static constexpr float most_scale = HasTerms ? 1.0F / 256.0F : piecewise_linear_softmax::most_scale;

  /// Turns the scores of a tile into what pack() takes. `factor`: what the sums of earlier tiles are to be multiplied
  /// by. Scales: whether scales may be large or NaN. `is_first`: the tile is the first of the sequence.
  template <tile_mask Mask, tile_scales Scales>
  __device__ __forceinline__ void take(std::int32_t (&scores)[registers], float scale, key_limits const& limits,
                                       bool is_first, float (&factor)[2]) {
    if constexpr (Mask != tile_mask::none) {
      rows::template hide<Mask>(scores, limits, hidden);
    }
    refer<Mask, Scales>(scores, scale, factor);
    float slope = weights::steps * scale;
    float addend[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float const before = this->template reference_or_zero<Mask>(row);
      addend[row] = __fmaf_rn(slope, -integer_magic, __fmaf_rn(-weights::steps, before, weights::top));
    }
    if constexpr (Mask != tile_mask::none) {
      slope = fmaxf(slope, 1e-37F);  // times minus infinity it is not NaN
    }
    if constexpr (Scales == tile_scales::any) {
      if (!(scale < piecewise_linear_softmax::most_scale)) {
        subtract_first(scores, scale);
        slope = 1.0F / weights::exact_steps;
        addend[0] = addend[1] = -integer_magic / weights::exact_steps;
      }
    }
    weigh(scores, slope, addend);
    if constexpr (weights::has_low_line) {
      if (is_first) {
        rows::take_low_line(scores);
      }
    }
  }

  /// Lets sums of products of codes begin at terms: at bits of floats, each of which is Terms::base() and the term less
  /// the row's first one, in units of `scale`. With the products added they are bits of floats, which take_begun()
  /// takes if is_begun() says that no term is too far from its row's first for that.
  template <class Terms>
  static __device__ __forceinline__ void begin(std::int32_t (&sums)[registers], float scale, row_terms const& terms) {
    float const units = terms.to_base_2 * fast_reciprocal(scale);
    float const first[2] = {__fmaf_rn(-terms.of_score[0], units, Terms::base(0)),
                            __fmaf_rn(-terms.of_score[2], units, Terms::base(1))};
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      sums[i] = __float_as_int(__fmaf_rn(terms.of_score[i], units, first[i / 2 % 2]));
    }
  }
  /// Whether take_begun() may take a lane's sums that have begun. Never where a term is infinite or NaN. `IsLine`:
  /// terms lie on a line, so that only the first and the last are looked at. `offset`: first terms, in base 2.
  template <bool IsLine>
  [[nodiscard]] __device__ __forceinline__ static bool is_begun(std::int32_t const (&sums)[registers],
                                                                float const (&offset)[2]) {
    std::uint32_t outside = fabsf(offset[0]) < most_offset && fabsf(offset[1]) < most_offset ? 0 : begin_values;
#pragma unroll
    for (int i = 0; i < registers; i += IsLine ? registers - 1 : 1) {
      outside |= static_cast<std::uint32_t>(sums[i]) ^ least_begin;
    }
    return outside < begin_values;
  }
  /// Makes sums of products of sums that began at terms.
  template <class Terms>
  static __device__ __forceinline__ void end(std::int32_t (&sums)[registers], float scale, row_terms const& terms) {
    std::int32_t begun[registers];
    begin<Terms>(begun, scale, terms);
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      sums[i] -= begun[i];
    }
  }

  /// As take(), for scores that began at terms: at bits of floats, of which Terms::base() stands
  /// for the logit `offset` of its row.
  template <tile_mask Mask, class Terms>
  __device__ __forceinline__ void take_begun(std::int32_t (&scores)[registers], float scale, float const (&offset)[2],
                                             key_limits const& limits, bool is_first, float (&factor)[2]) {
    constexpr std::int32_t nothing = -8388608;  // the bits of minus infinity
    if constexpr (Mask != tile_mask::none) {
      rows::template hide<Mask>(scores, limits, nothing);
    }
    float slope = weights::steps * scale;
    float addend[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      std::int32_t const most = rows::largest_of_row(scores, row);
      float const here = __fmaf_rn(scale, __int_as_float(most) - Terms::base(row), offset[row]);
      this->template refer_row<Mask != tile_mask::none>(row, here, factor);
      float const before = this->template reference_or_zero<Mask>(row);
      float const zero = __fmaf_rn(weights::steps, offset[row] - before, weights::top);
      addend[row] = __fmaf_rn(slope, -Terms::base(row), zero);
    }
    if constexpr (Mask != tile_mask::none) {
      slope = fmaxf(slope, 1e-37F);  // times minus infinity it is not NaN
    }
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      scores[i] = __float_as_int(weights::of(__fmaf_rn(__int_as_float(scores[i]), slope, addend[i / 2 % 2])));
    }
    if constexpr (weights::has_low_line) {
      if (is_first) {
        rows::take_low_line(scores);
      }
    }
  }

  /// The same for scores to whose logits `terms` are added, in base 2: minus infinity hides a key, NaN makes its row
  /// NaN.
  ///
  /// Scores become steps * logit + lift, which is positive where logits are not below -2048, and rounded to 2^-10. The
  /// bits of positive floats have the order of the floats, and the maximum of three integers is one instruction.
  template <tile_mask Mask, tile_scales Scales>
  __device__ __forceinline__ void take(std::int32_t (&scores)[registers], float scale, row_terms const& terms,
                                       key_limits const& limits, bool is_first, float (&factor)[2]) {
    add_terms<Scales>(scores, scale, terms);
    this->template take_lifted<Mask>(scores, limits, is_first, factor);
  }

 private:
  static constexpr std::uint32_t least_begin = 0x4b400000U;  ///< the bits of the least float that a sum may begin at
  static constexpr std::uint32_t begin_values = 1U << 21;    ///< so many floats from there on may be begun at
  using rows::most_offset, rows::lift;

  /// Turns sums into the bits of steps * (scale * sum + term) + lift.
  template <tile_scales Scales>
  __device__ __forceinline__ static void add_terms(std::int32_t (&scores)[registers], float scale,
                                                   row_terms const& terms) {
    constexpr bool is_exact = Scales == tile_scales::any;
    float const slope = weights::steps * scale;
    float const of_term = weights::steps * terms.to_base_2;
    float const zero = is_exact ? lift : __fmaf_rn(slope, -integer_magic, lift);
    float const addend[2] = {__fmaf_rn(terms.base[0], of_term, zero), __fmaf_rn(terms.base[1], of_term, zero)};
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      float const sum = score_sums::plus_magic(scores[i]);
      float const added = __fmaf_rn(terms.of_score[i], of_term, addend[i / 2 % 2]);
      scores[i] = __float_as_int(__fmaf_rn(slope, is_exact ? sum - integer_magic : sum, added));
    }
  }
  /// Finds the tile's references, and the factors of earlier sums.
  template <tile_mask Mask, tile_scales Scales>
  __device__ __forceinline__ void refer(std::int32_t const (&scores)[registers], float scale, float (&factor)[2]) {
    constexpr bool is_masked = Mask != tile_mask::none;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      std::int32_t const most = rows::largest_of_row(scores, row);
      float here = scale * (score_sums::plus_magic(most) - integer_magic);
      if constexpr (Scales == tile_scales::any) {
        here = __fmaf_rn(here, 0.0F, here);  // infinity becomes NaN
      }
      if constexpr (is_masked) {
        here = most == hidden ? -infinity : here;
      }
      this->template refer_row<is_masked>(row, here, factor);
    }
  }
  /// Turns scores into weights::of(score * slope + addend).
  __device__ __forceinline__ static void weigh(std::int32_t (&scores)[registers], float slope,
                                               float const (&addend)[2]) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      float const score = score_sums::plus_magic(scores[i]);
      scores[i] = __float_as_int(weights::of(__fmaf_rn(score, slope, addend[i / 2 % 2])));
    }
  }

  /// Turns scores into integers that have references subtracted, with exact_steps for a step of weights::of.
  __device__ __forceinline__ void subtract_first(std::int32_t (&scores)[registers], float scale) const {
    constexpr float least = -4194303.0F;  // integers that integer_magic takes
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      float const logit = __fmul_rn(scale, score_sums::plus_magic(scores[i]) - integer_magic);  // as `reference`
      float const step = __fmaf_rn(weights::steps, logit - reference[i / 2 % 2], weights::top);
      scores[i] = __float2int_rn(fmaxf(step * weights::exact_steps, least));
    }
  }
};

}  // namespace v0
}  // namespace tessera
