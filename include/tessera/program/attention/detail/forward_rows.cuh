// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_rows`: what an online softmax knows of the rows of a lane, and its steps that are the same whether scores
/// are integers (attention/detail/forward_softmax.cuh) or floats (attention/detail/forward_float_softmax.cuh).
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/lane_weights.cuh>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/tile/cuda/sm_90/largest_of_three.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// Which keys of a tile are hidden from some rows: none, those from some key on, or also those before some key.
enum class tile_mask { none, behind, both };

/// What is known of the scales of logits: all are below piecewise_linear_softmax::most_scale, or nothing is known.
enum class tile_scales { small, any };

/// The keys that the lane's rows see. Key k = 8 j + 2 (lane % 4) + i of the tile counts as 8 j + i. The first row sees
/// keys from `low` on, the second from low + 8 on, each up to its `high` - 1.
struct key_limits {
  std::int32_t low;      ///< the first key that the first row sees
  std::int32_t high[2];  ///< one past the last key that each row sees

  /// The limits of the calling lane. Work: attention_pipeline's warp_work_item.
  template <class Work>
  __device__ __forceinline__ static key_limits of(Work const volatile& work, std::int32_t tile) {
    auto const lane = static_cast<std::int32_t>(thread_index_here() % 32);
    std::int32_t const first_key = tile * attention_tile_keys + 2 * (lane % 4);
    std::int32_t const row = lane / 4 - first_key;
    std::int32_t const high = work.high + row;
    std::int32_t const end = work.keys - first_key;
    return {work.low + row, {min(high, end), min(high + 8, end)}};
  }
};

/// What is added to a lane's logits of a tile.
struct row_terms {
  float of_score[64];  ///< of each score
  float base[2];       ///< of all scores of either row
  float to_base_2;     ///< what both are multiplied by to be in base 2

  /// The first term of a row, in base 2.
  [[nodiscard]] __device__ __forceinline__ float first(int row) const {
    return to_base_2 * (of_score[2 * row] + base[row]);
  }
};

/// Rows lane / 4 and lane / 4 + 8 of a warp. Softmax: one with lane_weights.
template <class Softmax>
struct attention_rows {
  /// Makes the codes of weights.
  using weights = lane_weights<Softmax>;
  static constexpr int registers = 64;  ///< scores of a lane

  float largest[2] = {-infinity, -infinity};    ///< M: the largest logit so far of each row
  float reference[2] = {-infinity, -infinity};  ///< r: the reference of each row's last tile

  /// Packs weights into left operands of 64 x 32 codes, four registers for each 32 keys. The keys have the order of
  /// quantized values: in each 16, keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 are neighbours.
  __device__ __forceinline__ static void pack(std::int32_t const (&taken)[registers],
                                              std::uint32_t (&packed)[registers / 16][4]) {
#pragma unroll
    for (int i = 0; i < registers / 16; ++i) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        int const at = 16 * i + 8 * (word / 2) + 2 * (word % 2);
        packed[i][word] = weights::pack(__int_as_float(taken[at]), __int_as_float(taken[at + 1]),
                                        __int_as_float(taken[at + 4]), __int_as_float(taken[at + 5]));
      }
    }
  }

 protected:
  /// References and offsets below this are so exact that rounding moves weights by a tenth of a step.
  static constexpr float most_offset = 131072.0F;
  static constexpr float lift = 2048.0F * weights::steps;  ///< added to logits with terms

  /// Turns lifted logits, the bits of steps * logit + lift, into weights::of() of their distance to the references.
  template <tile_mask Mask>
  __device__ __forceinline__ void take_lifted(std::int32_t (&scores)[registers], key_limits const& limits,
                                              bool is_first, float (&factor)[2]) {
    if constexpr (Mask != tile_mask::none) {
      hide<Mask>(scores, limits, __float_as_int(-infinity));
    }
    refer_lifted(scores, factor);
    subtract_lifted(scores);
    if constexpr (weights::has_low_line) {
      if (is_first) {
        round_to_integers(scores);
        take_low_line(scores);
      }
    }
  }

  /// A row's reference; 0 where the row has seen nothing yet: all keys of the tile are hidden from it, and relative to
  /// minus infinity their weights would be NaN.
  template <tile_mask Mask>
  [[nodiscard]] __device__ __forceinline__ float reference_or_zero(int row) const {
    return Mask != tile_mask::none && reference[row] == -infinity ? 0.0F : reference[row];
  }
  /// Replaces the scores of keys that the lane's rows do not see.
  template <tile_mask Mask>
  __device__ __forceinline__ static void hide(std::int32_t (&scores)[registers], key_limits const& limits,
                                              std::int32_t hidden_score) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      scores[i] = i / 4 * 8 + i % 2 < limits.high[i / 2 % 2] ? scores[i] : hidden_score;
    }
    if constexpr (Mask == tile_mask::both) {
      pin_registers(scores);  // so that the two masks follow each other, for want of registers
#pragma unroll
      for (int i = 0; i < registers; ++i) {
        scores[i] = i / 4 * 8 + i % 2 - i / 2 % 2 * 8 >= limits.low ? scores[i] : hidden_score;
      }
    }
  }

  /// The largest score of a row, by two chains of maxima that do not wait for each other.
  __device__ __forceinline__ static std::int32_t largest_of_row(std::int32_t const (&scores)[registers], int row) {
    int const first = 2 * row;
    std::int32_t even = scores[first] > scores[first + 1] ? scores[first] : scores[first + 1];
    std::int32_t odd = scores[first + 4] > scores[first + 5] ? scores[first + 4] : scores[first + 5];
#pragma unroll
    for (int i = 8; i < registers; i += 8) {
      even = largest_of_three(even, scores[first + i], scores[first + i + 1]);
      odd = largest_of_three(odd, scores[first + i + 4], scores[first + i + 5]);
    }
    return even > odd ? even : odd;
  }

  /// The largest of the lane's scores of a row, which are the bits of floats; NaN if one is NaN.
  __device__ __forceinline__ static float largest_float(std::int32_t const (&scores)[registers], int row) {
    float most = -infinity;
#pragma unroll
    for (int i = 2 * row; i < registers; i += 4) {
      most = maximum_or_nan(most, maximum_or_nan(__int_as_float(scores[i]), __int_as_float(scores[i + 1])));
    }
    return most;
  }

  /// Finds a row's reference of a tile, and the factor of its earlier sums. `here`: the lane's largest logit of it.
  template <bool IsMasked>
  __device__ __forceinline__ void refer_row(int row, float here, float (&factor)[2]) {
    constexpr float most_below = online_softmax<float>::lowest_reference;
    here = maximum_or_nan(here, shuffle_xor(here, 1));
    here = maximum_or_nan(here, shuffle_xor(here, 2));
    largest[row] = maximum_or_nan(largest[row], here);
    float next = maximum_or_nan(here, largest[row] - most_below);
    if constexpr (IsMasked) {
      next = here == -infinity ? reference[row] : next;  // a row that sees nothing here stays as it is
      factor[row] = here == -infinity ? 1.0F : fast_exp2(reference[row] - next);
    } else {
      factor[row] = fast_exp2(reference[row] - next);
    }
    reference[row] = next;
  }

  /// Takes the softmax's line for low weights instead, where it is the larger one.
  __device__ __forceinline__ static void take_low_line(std::int32_t (&scores)[registers]) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      scores[i] = __float_as_int(piecewise_linear_softmax::low_line(__int_as_float(scores[i])));
    }
  }

 private:
  /// Finds the tile's references of lifted logits, and the factors of earlier sums.
  __device__ __forceinline__ void refer_lifted(std::int32_t const (&scores)[registers], float (&factor)[2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      std::int32_t most = largest_of_row(scores, row);
      if (any_of_warp(most < 0)) {  // some lane has only logits below -2048
        most = __float_as_int(largest_float(scores, row));
      }
      float const here = __fmaf_rn(__int_as_float(most), 1.0F / weights::steps, -lift / weights::steps);
      refer_row<true>(row, here == infinity ? __int_as_float(0x7fffffff) : here, factor);
    }
  }
  /// Turns lifted logits into weights::of() of their distance to the references. None is above the largest weight's:
  /// where references are so large that rounding could lift one above it, it is limited.
  __device__ __forceinline__ void subtract_lifted(std::int32_t (&scores)[registers]) const {
    float const before[2] = {reference_or_zero<tile_mask::both>(0), reference_or_zero<tile_mask::both>(1)};
    if (all_of_warp(fabsf(before[0]) < most_offset && fabsf(before[1]) < most_offset)) {
      float const addend[2] = {__fmaf_rn(-weights::steps, before[0], weights::top - lift),
                               __fmaf_rn(-weights::steps, before[1], weights::top - lift)};
#pragma unroll
      for (int i = 0; i < registers; ++i) {
        scores[i] = __float_as_int(weights::of(__int_as_float(scores[i]) + addend[i / 2 % 2]));
      }
      return;
    }
    float const least[2] = {__fmaf_rn(weights::steps, before[0], lift), __fmaf_rn(weights::steps, before[1], lift)};
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      float const below = minimum_or_nan(__int_as_float(scores[i]) - least[i / 2 % 2], 0.0F);
      scores[i] = __float_as_int(weights::of(below + weights::top));
    }
  }
  __device__ __forceinline__ static void round_to_integers(std::int32_t (&scores)[registers]) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      scores[i] = __float_as_int(rintf(__int_as_float(scores[i])));
    }
  }
};

}  // namespace v0
}  // namespace tessera
