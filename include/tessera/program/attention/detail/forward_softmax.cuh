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
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/cuda/exponential.cuh>

namespace tessera {
inline namespace v0 {

/// The largest word without a sign. Values are words with one.
struct largest_word_reducer {
  using state_type = std::uint32_t;
  using input_type = std::int32_t;
  static constexpr bool any_order = true;  ///< values may come in any order

  __device__ __forceinline__ std::uint32_t identity() const { return 0; }
  /// Takes a word.
  __device__ __forceinline__ void push(std::uint32_t& state, std::int32_t word) const {
    merge(state, static_cast<std::uint32_t>(word));
  }
  /// Takes another state.
  __device__ __forceinline__ void merge(std::uint32_t& into, std::uint32_t other) const { into = max(into, other); }
  /// The larger of two words.
  __device__ __forceinline__ std::uint32_t of_pair(std::int32_t first, std::int32_t second) const {
    return max(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(second));
  }
  /// Takes two words at a time.
  __device__ __forceinline__ void push_pair(std::uint32_t& state, std::int32_t first, std::int32_t second) const {
    merge(state, of_pair(first, second));
  }
};

/// The softmax of a lane's rows. Softmax: one with lane_weights.
template <class Softmax>
struct attention_weights : attention_rows<Softmax> {
  using rows = attention_rows<Softmax>;  ///< what it shares with scores of floats
  using typename rows::bits_type, typename rows::weights;
  /// A value for each row.
  template <class Value>
  using row_values = score_row_values<Value>;
  static constexpr bool begins_at_terms = true;  ///< whether sums of products may begin at terms
  /// So far below a row's largest sum are sums that began outside of the floats whose bits are integers.
  static constexpr std::uint32_t window_depth = 3U << 19;
  /// From this scale on weights of sums so far below are 2^-32 of a row's largest, and their codes 0.
  static constexpr float least_scale = 32.0F / static_cast<float>(window_depth);
  /// The float whose bits, added to an integer, make a float of it.
  static constexpr float integer_magic = piecewise_linear_softmax::integer_magic;
  /// The score of a hidden key. HasBegun: sums began at integer_magic, so that they are bits of floats.
  template <bool HasBegun>
  static constexpr std::int32_t hidden = HasBegun ? -8388608 : score_sums::hidden;  // the bits of minus infinity
  /// From this scale on tile_scales are `any`. With terms the rounding differs from key to key.
  template <bool HasTerms>
  static constexpr float most_scale = HasTerms ? 1.0F / 256.0F : piecewise_linear_softmax::most_scale;

  /// Turns the scores of a tile into what pack() takes. `factor`: what the sums of earlier tiles are to be multiplied
  /// by. Scales: whether scales may be large or NaN. HasBegun: as for `hidden`. `is_first`: the tile is the sequence's
  /// first one.
  template <tile_mask Mask, tile_scales Scales, bool HasBegun>
  __device__ __forceinline__ void take(bits_type& scores, float scale, key_limits const& limits, bool is_first,
                                       row_values<float>& factor) {
    rows::template hide<Mask>(scores, limits, hidden<HasBegun>);
    refer<Mask, Scales, HasBegun>(scores, scale, factor);
    float slope = weights::steps * scale;
    row_values<float> addend = rows::of_rows(
        [&](attention_row_state const& row) {
          float const before = row.template reference_or_zero<Mask>();
          return __fmaf_rn(slope, -integer_magic, __fmaf_rn(-weights::steps, before, weights::top));
        },
        this->state);
    if constexpr (Mask != tile_mask::none) {
      slope = fmaxf(slope, 1e-37F);  // times minus infinity it is not NaN
    }
    if constexpr (Scales == tile_scales::any) {
      if (!(scale < piecewise_linear_softmax::most_scale)) {
        subtract_first<HasBegun>(scores, scale);
        slope = 1.0F / weights::exact_steps;
        addend = rows::of_rows([] { return -integer_magic / weights::exact_steps; });
      }
    }
    score_words::each_with_row(
        rows::lane(), scores,
        [slope](int, int, std::int32_t& score, float added) {
          score = __float_as_int(weights::of(__fmaf_rn(plus_magic<HasBegun>(score), slope, added)));
        },
        addend);
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
  static __device__ __forceinline__ void begin(bits_type& sums, float scale, row_terms const& terms) {
    float const units = terms.to_base_2 * fast_reciprocal(scale);
    row_values<float> const first{
        {{__fmaf_rn(-terms.of_score[0], units, Terms::base(0)), __fmaf_rn(-terms.of_score[2], units, Terms::base(1))}}};
    score_floats::map_sums<score_words>(
        rows::lane(), terms.of_score, sums,
        [units](int, int, float term, float of_row) { return __float_as_int(__fmaf_rn(term, units, of_row)); }, first);
  }
  /// Whether take_begun() may take a lane's sums that have begun, whatever their scale is. Never where a term is
  /// infinite or NaN. `offset`: first terms, in base 2.
  [[nodiscard]] __device__ __forceinline__ static bool is_begun(bits_type& sums, row_values<float> const& offset) {
    std::uint32_t outside = has_room(offset) ? 0 : begin_values;
    score_words::each_with_row(rows::lane(), sums, [&](int, int, std::int32_t sum) {
      outside |= static_cast<std::uint32_t>(sum) ^ least_begin;
    });
    return outside < begin_values;
  }
  /// Makes sums of products of sums that began at terms.
  template <class Terms>
  static __device__ __forceinline__ void end(bits_type& sums, float scale, row_terms const& terms) {
    bits_type begun;
    begin<Terms>(begun, scale, terms);
    score_words::each_with_both<score_words>(rows::lane(), begun, sums,
                                             [](int, int, std::int32_t before, std::int32_t& sum) { sum -= before; });
  }

  /// Makes sums of products of sums that began at `integer_magic`.
  static __device__ __forceinline__ void end_at_base(bits_type& sums) {
    score_words::each_with_row(rows::lane(), sums, [](int, int, std::int32_t& sum) { sum -= score_sums::magic_bits; });
  }
  /// Whether take_begun() may take these offsets.
  [[nodiscard]] __device__ __forceinline__ static bool has_room(row_values<float> const& offset) {
    std::uint32_t are_near = 1;  // a word: bools have branches
    score_words::each_row(
        rows::lane(), [&](int, float of_row) { are_near &= fabsf(of_row) < most_offset ? 1 : 0; }, offset);
    return are_near != 0;
  }

  /// The largest of each of a lane's rows of sums that began at terms, of which nothing else is known. Bits count as
  /// words without a sign: negative sums, and NaNs to which products are added, are the greatest.
  static __device__ __forceinline__ void largest_begun(bits_type const& sums, row_values<std::int32_t>& most) {
    row_values<std::uint32_t> largest;
    score_words::fold_lanes(rows::lane(), largest_word_reducer{}, sums, largest);
    score_words::each_row(
        rows::lane(), [](int, std::uint32_t bits, std::int32_t& to) { to = static_cast<std::int32_t>(bits); }, largest,
        most);
  }
  /// Whether take_begun() may take a lane's sums, of which largest_begun() is known. It may be that it may, too, where
  /// this is false: if is_begun() says so of what they began at. Products of codes are within 2^21, so that all sums
  /// that began beyond 2^24 would be above the window, and those that began below 2^23, of which the bits are other
  /// units, are `window_depth` below its begin: their weights are 0 in truth and as they are.
  [[nodiscard]] __device__ __forceinline__ static bool is_in_window(row_values<std::int32_t> const& most, float scale,
                                                                    row_values<float> const& offset) {
    std::uint32_t is_inside = scale >= least_scale ? 1 : 0;  // a word: bools have branches
    score_words::each_row(
        rows::lane(),
        [&](int, std::int32_t bits) {
          is_inside &= static_cast<std::uint32_t>(bits) - window_begin < window_end - window_begin ? 1 : 0;
        },
        most);
    return (is_inside & static_cast<std::uint32_t>(has_room(offset))) != 0;
  }

  /// As take(), for scores that began at terms: at bits of floats, of which Terms::base() stands
  /// for the logit `offset` of its row.
  template <tile_mask Mask, class Terms>
  __device__ __forceinline__ void take_begun(bits_type& scores, float scale, row_values<float> const& offset,
                                             key_limits const& limits, bool is_first, row_values<float>& factor) {
    constexpr std::int32_t nothing = -8388608;  // the bits of minus infinity
    rows::template hide<Mask>(scores, limits, nothing);
    row_values<std::int32_t> most;
    score_words::fold_lanes(rows::lane(), maximum_reducer<std::int32_t>{}, scores, most);
    take_begun_from<Mask, Terms>(scores, most, scale, offset, is_first, factor);
  }
  /// The same where `most` are the largest scores of the lane's rows.
  template <tile_mask Mask, class Terms>
  __device__ __forceinline__ void take_begun_from(bits_type& scores, row_values<std::int32_t> const& most, float scale,
                                                  row_values<float> const& offset, bool is_first,
                                                  row_values<float>& factor) {
    row_values<float> const base{{{Terms::base(0), Terms::base(1)}}};
    float slope = weights::steps * scale;
    row_values<float> here =
        rows::of_rows([scale](std::int32_t bits, float of_row,
                              float first) { return __fmaf_rn(scale, __int_as_float(bits) - of_row, first); },
                      most, base, offset);
    this->template refer_rows<Mask != tile_mask::none>(here, factor);
    row_values<float> const addend = rows::of_rows(
        [slope](attention_row_state const& row, float of_row, float first) {
          float const before = row.template reference_or_zero<Mask>();
          return __fmaf_rn(slope, -of_row, __fmaf_rn(weights::steps, first - before, weights::top));
        },
        this->state, base, offset);
    if constexpr (Mask != tile_mask::none) {
      slope = fmaxf(slope, 1e-37F);  // times minus infinity it is not NaN
    }
    rows::each_float(
        scores, [slope](float score, float added) { return weights::of(__fmaf_rn(score, slope, added)); }, addend);
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
  __device__ __forceinline__ void take(bits_type& scores, float scale, row_terms const& terms, key_limits const& limits,
                                       bool is_first, row_values<float>& factor) {
    add_terms<Scales>(scores, scale, terms);
    this->template take_lifted<Mask>(scores, limits, is_first, factor);
  }

 private:
  static constexpr std::uint32_t least_begin = 0x4b400000U;  ///< the bits of the least float that a sum may begin at
  static constexpr std::uint32_t begin_values = 1U << 21;    ///< so many floats from there on may be begun at
  /// The bits of the least largest sum of is_in_window(): of 2^23, most of products and the depth.
  static constexpr std::uint32_t window_begin = 0x4b000000U + (1U << 21) + window_depth;
  /// The bits behind the greatest largest sum of is_in_window(): of 2^24 less most of products.
  static constexpr std::uint32_t window_end = 0x4b800000U - (1U << 21);
  using rows::most_offset, rows::lift;

  /// Turns sums into the bits of steps * (scale * sum + term) + lift.
  template <tile_scales Scales>
  __device__ __forceinline__ static void add_terms(bits_type& scores, float scale, row_terms const& terms) {
    constexpr bool is_exact = Scales == tile_scales::any;
    float const slope = weights::steps * scale;
    float const of_term = weights::steps * terms.to_base_2;
    float const zero = is_exact ? lift : __fmaf_rn(slope, -integer_magic, lift);
    row_values<float> const addend =
        rows::of_rows([=](float base) { return __fmaf_rn(base, of_term, zero); }, terms.base);
    score_floats::each_with_both<score_words>(
        rows::lane(), terms.of_score, scores,
        [=](int, int, float term, std::int32_t& score, float of_row) {
          float const sum = score_sums::plus_magic(score);
          float const added = __fmaf_rn(term, of_term, of_row);
          score = __float_as_int(__fmaf_rn(slope, is_exact ? sum - integer_magic : sum, added));
        },
        addend);
  }
  /// A score as a float, integer_magic more than it is.
  template <bool HasBegun>
  __device__ __forceinline__ static float plus_magic(std::int32_t score) {
    return HasBegun ? __int_as_float(score) : score_sums::plus_magic(score);
  }
  /// Finds the tile's references, and the factors of earlier sums.
  template <tile_mask Mask, tile_scales Scales, bool HasBegun>
  __device__ __forceinline__ void refer(bits_type const& scores, float scale, row_values<float>& factor) {
    constexpr bool is_masked = Mask != tile_mask::none;
    row_values<std::int32_t> most;
    score_words::fold_lanes(rows::lane(), maximum_reducer<std::int32_t>{}, scores, most);
    row_values<float> here = rows::of_rows(
        [scale](std::int32_t score) {
          float logit = scale * (plus_magic<HasBegun>(score) - integer_magic);
          if constexpr (Scales == tile_scales::any) {
            logit = __fmaf_rn(logit, 0.0F, logit);  // infinity becomes NaN
          }
          return is_masked && score == hidden<HasBegun> ? -infinity : logit;
        },
        most);
    this->template refer_rows<is_masked>(here, factor);
  }

  /// Turns scores into integers that have references subtracted, with exact_steps for a step of weights::of, as
  /// plus_magic() takes them.
  template <bool HasBegun>
  __device__ __forceinline__ void subtract_first(bits_type& scores, float scale) const {
    constexpr float least = -4194303.0F;  // integers that integer_magic takes
    score_words::each_with_row(
        rows::lane(), scores,
        [scale](int, int, std::int32_t& score, attention_row_state const& row) {
          float const logit = __fmul_rn(scale, plus_magic<HasBegun>(score) - integer_magic);  // as `reference`
          float const step = __fmaf_rn(weights::steps, logit - row.reference, weights::top);
          score = __float2int_rn(fmaxf(step * weights::exact_steps, least)) + (HasBegun ? score_sums::magic_bits : 0);
        },
        this->state);
  }
};

}  // namespace v0
}  // namespace tessera
