// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_rows`: what an online softmax knows of the rows of a lane, and its steps that are the same whether scores
/// are integers (attention/detail/forward_softmax.cuh) or floats (attention/detail/forward_float_softmax.cuh).
///
/// They are made of row words. H200, 16K tokens over codes, in turns with loops over registers by hand, in TFLOP/s: 64
/// channels 868 for 880, 128 channels 1112 for 1119, 256 channels 1212 for 1216.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/detail/key_limits.cuh>
#include <tessera/program/attention/lane_weights.cuh>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_rows.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/multiply_sums.hpp>

namespace tessera {
inline namespace v0 {

/// What is known of the scales of logits: all are below piecewise_linear_softmax::most_scale, or nothing is known.
enum class tile_scales { small, any };

/// Scores of 64 queries and a tile of keys that are floats.
using score_floats = warpgroup_rows<float, attention_tile_keys>;
/// Scores that are integers, or the bits of floats.
using score_words = warpgroup_rows<std::int32_t, attention_tile_keys>;
/// A value for each of a lane's rows.
template <class Value>
using score_row_values = score_floats::row_values<Value>;

/// What is added to a lane's logits of a tile.
struct row_terms {
  score_floats::sum_tile of_score;  ///< of each score
  score_row_values<float> base;     ///< of all scores of a row
  float to_base_2;                  ///< what both are multiplied by to be in base 2

  /// The first term of each row, in base 2.
  [[nodiscard]] __device__ __forceinline__ score_row_values<float> first() const {
    return {{{to_base_2 * (of_score[0] + base.values[0][0]), to_base_2 * (of_score[2] + base.values[0][1])}}};
  }
};

/// The largest float, or NaN if one is NaN. Values are the bits of floats.
struct largest_of_bits_reducer {
  using state_type = float;
  using input_type = std::int32_t;
  static constexpr bool any_order = true;  ///< values may come in any order

  __device__ __forceinline__ float identity() const { return -infinity; }
  /// Takes the bits of a value.
  __device__ __forceinline__ void push(float& state, std::int32_t bits) const { merge(state, __int_as_float(bits)); }
  /// Takes another state.
  __device__ __forceinline__ void merge(float& into, float other) const { into = maximum_or_nan(into, other); }
  /// The larger of two values that are given by their bits; NaN if one is NaN.
  __device__ __forceinline__ float of_pair(std::int32_t first, std::int32_t second) const {
    return maximum_or_nan(__int_as_float(first), __int_as_float(second));
  }
  /// Takes two values at a time.
  __device__ __forceinline__ void push_pair(float& state, std::int32_t first, std::int32_t second) const {
    merge(state, of_pair(first, second));
  }
};

/// What is known of a row.
struct attention_row_state {
  float largest = -infinity;    ///< M: the largest logit so far
  float reference = -infinity;  ///< r: the reference of the last tile

  /// A row's reference; 0 where the row has seen nothing yet: all keys of the tile are hidden from it, and relative to
  /// minus infinity their weights would be NaN.
  template <tile_mask Mask>
  [[nodiscard]] __device__ __forceinline__ float reference_or_zero() const {
    return Mask != tile_mask::none && reference == -infinity ? 0.0F : reference;
  }
  /// Finds the reference of a tile whose largest logit is given, and the factor of earlier sums.
  template <bool IsMasked>
  __device__ __forceinline__ float turn(float here) {
    constexpr float most_below = online_softmax<float>::lowest_reference;
    float factor;
    largest = maximum_or_nan(largest, here);
    float next = maximum_or_nan(here, largest - most_below);
    if constexpr (IsMasked) {
      next = here == -infinity ? reference : next;  // a row that sees nothing here stays as it is
      factor = here == -infinity ? 1.0F : fast_exp2(reference - next);
    } else {
      factor = fast_exp2(reference - next);
    }
    reference = next;
    return factor;
  }
};

/// The rows of a lane. Softmax: one with lane_weights.
template <class Softmax>
struct attention_rows {
  /// Makes the codes of weights.
  using weights = lane_weights<Softmax>;
  /// A value for each row.
  template <class Value>
  using row_values = score_row_values<Value>;
  using bits_type = score_words::sum_tile;  ///< scores of a lane, or their bits
  /// Left operands of 64 x 32 codes, whose keys have the order of quantized values: in each 16, keys 2 t, 2 t + 1,
  /// 2 t + 8 and 2 t + 9 are neighbours.
  using operands_type = operands_of_sums<score_words, warpgroup_mma<float8_e4m3, 8>>;

  row_values<attention_row_state> state;  ///< what each row knows

  /// The reference of each row's last tile.
  [[nodiscard]] __device__ __forceinline__ float reference(int row) const { return state.values[0][row].reference; }

  /// Packs weights into left operands.
  __device__ __forceinline__ static void pack(bits_type const& taken, operands_type& packed) {
    packed.make(lane(), taken, [](std::int32_t a, std::int32_t b, std::int32_t c, std::int32_t d) {
      return weights::pack(__int_as_float(a), __int_as_float(b), __int_as_float(c), __int_as_float(d));
    });
  }

 protected:
  /// References and offsets below this are so exact that rounding moves weights by a tenth of a step.
  static constexpr float most_offset = 131072.0F;
  static constexpr float lift = 2048.0F * weights::steps;  ///< added to logits with terms

  /// The lane of this thread.
  __device__ __forceinline__ static warpgroup_lane lane() { return warpgroup_lane::of_thread(); }

  /// Turns lifted logits, the bits of steps * logit + lift, into weights::of() of their distance to the references.
  template <tile_mask Mask>
  __device__ __forceinline__ void take_lifted(bits_type& scores, key_limits const& limits, bool is_first,
                                              row_values<float>& factor) {
    hide<Mask>(scores, limits, __float_as_int(-infinity));
    refer_lifted(scores, factor);
    subtract_lifted(scores);
    if constexpr (weights::has_low_line) {
      if (is_first) {
        each_float(scores, [](float score) { return rintf(score); });
        take_low_line(scores);
      }
    }
  }

  /// Replaces the scores of keys that the lane's rows do not see.
  template <tile_mask Mask>
  __device__ __forceinline__ static void hide(bits_type& scores, key_limits const& limits, std::int32_t hidden_score) {
    if constexpr (Mask != tile_mask::none) {
      score_words::hide_from(limits.lane, scores, hidden_score, limits.end);
    }
    if constexpr (Mask == tile_mask::both) {
      pin_registers(scores);  // so that the two masks follow each other, for want of registers
      score_words::hide_before_diagonal(limits.lane, scores, hidden_score, limits.first);
    }
  }

  /// Makes bits of floats other ones: make(score, value of its row...).
  template <class Make, class... Values>
  __device__ __forceinline__ static void each_float(bits_type& scores, Make const& make, Values const&... values) {
    score_words::each_with_row(
        lane(), scores,
        [&](int, int, std::int32_t& score, auto const&... of_row) {
          score = __float_as_int(make(__int_as_float(score), of_row...));
        },
        values...);
  }
  /// Makes a value for each row: make(value of the row...).
  template <class Make, class... Values>
  __device__ __forceinline__ static row_values<float> of_rows(Make const& make, Values const&... values) {
    row_values<float> made;
    score_words::each_row(
        lane(), [&](int, float& to, auto const&... of_row) { to = make(of_row...); }, made, values...);
    return made;
  }

  /// Finds each row's reference of a tile, and the factor of its earlier sums. `here`: the lane's largest logits of it.
  template <bool IsMasked>
  __device__ __forceinline__ void refer_rows(row_values<float>& here, row_values<float>& factor) {
    score_words::merge_lanes(lane(), largest_of_bits_reducer{}, here);
    score_words::each_row(
        lane(),
        [](int, float most, attention_row_state& row, float& of_row) { of_row = row.template turn<IsMasked>(most); },
        here, state, factor);
  }

  /// Takes the softmax's line for low weights instead, where it is the larger one.
  __device__ __forceinline__ static void take_low_line(bits_type& scores) {
    each_float(scores, [](float score) { return piecewise_linear_softmax::low_line(score); });
  }

 private:
  /// Finds the tile's references of lifted logits, and the factors of earlier sums.
  __device__ __forceinline__ void refer_lifted(bits_type const& scores, row_values<float>& factor) {
    row_values<std::int32_t> most;
    score_words::fold_lanes(lane(), maximum_reducer<std::int32_t>{}, scores, most);
    std::int32_t signs = 0;
    score_words::each_row(
        lane(), [&](int, std::int32_t bits) { signs |= bits; }, most);
    if (any_of_warp(signs < 0)) {  // some lane has only logits below -2048
      row_values<float> largest;
      score_words::fold_lanes(lane(), largest_of_bits_reducer{}, scores, largest);
      score_words::each_row(
          lane(), [](int, std::int32_t& bits, float score) { bits = __float_as_int(score); }, most, largest);
    }
    row_values<float> here = of_rows(
        [](std::int32_t bits) {
          float const logit = __fmaf_rn(__int_as_float(bits), 1.0F / weights::steps, -lift / weights::steps);
          return logit == infinity ? __int_as_float(0x7fffffff) : logit;
        },
        most);
    refer_rows<true>(here, factor);
  }
  /// Turns lifted logits into weights::of() of their distance to the references. None is above the largest weight's:
  /// where references are so large that rounding could lift one above it, it is limited.
  __device__ __forceinline__ void subtract_lifted(bits_type& scores) const {
    row_values<float> const before = of_rows(
        [](attention_row_state const& row) { return row.template reference_or_zero<tile_mask::both>(); }, state);
    bool is_near = true;
    score_words::each_row(
        lane(), [&](int, float reference) { is_near = is_near && fabsf(reference) < most_offset; }, before);
    if (all_of_warp(is_near)) {
      row_values<float> const addend =
          of_rows([](float reference) { return __fmaf_rn(-weights::steps, reference, weights::top - lift); }, before);
      each_float(
          scores, [](float score, float added) { return weights::of(score + added); }, addend);
      return;
    }
    row_values<float> const least =
        of_rows([](float reference) { return __fmaf_rn(weights::steps, reference, lift); }, before);
    each_float(
        scores,
        [](float score, float lowest) { return weights::of(minimum_or_nan(score - lowest, 0.0F) + weights::top); },
        least);
  }
};

}  // namespace v0
}  // namespace tessera
