// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_weights`: a warpgroup's online softmax over tiles of scores of 64 queries, whose operands are not quantized.
/// Scores are fp32 sums in registers, as warpgroup_mma.cuh lays them out, and weights become operands of 16 bits, of
/// type T. References are the largest scores so far, as they are; `slope` makes logits in base 2 of them. For tile j,
///
///     M_j = max(M_(j-1), largest score)
///     P_j = 448 2^(slope (s - M_j))
///     O_j = 2^(slope (M_(j-1) - M_j)) O_(j-1) + P_j V_j
///
/// Weights are in units of 1 / 448, as those of attention/detail/forward_softmax.cuh are, so that both programs finish
/// and merge rows alike; in fp16 this also keeps weights that would be subnormal. Instructions for each score: a
/// maximum, a multiply-add, an exponential, an addition and half a conversion.
///
/// A NaN among a row's scores makes its weight NaN, and with it all that is added up. So does positive infinity.
/// Negative infinity has the weight 0.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/program/attention/detail/forward_softmax.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// The softmax of rows lane / 4 and lane / 4 + 8 of a warp, over tiles of `Keys` keys.
template <class T, int Keys>
struct dense_weights {
  static constexpr int registers = Keys / 2;          ///< scores of a lane
  static constexpr int steps = Keys / 16;             ///< left operands of 64 x 16 weights
  static constexpr float log2_of_top = 8.807354922F;  ///< of the largest weight, 448

  float reference[2] = {-infinity, -infinity};  ///< M: the largest score so far of each row
  float total[2] = {0.0F, 0.0F};                ///< the lane's part of each row's sum of weights

  /// Turns the scores of a tile into weights. `factor`: what sums of earlier tiles are to be multiplied by.
  template <tile_mask Mask>
  __device__ __forceinline__ void take(float (&scores)[registers], float slope, key_limits const& limits,
                                       float (&factor)[2]) {
    if constexpr (Mask != tile_mask::none) {
      hide<Mask>(scores, limits);
    }
    float addend[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float here = largest_of_row(scores, row);
      here = fmaxf(here, shuffle_xor(here, 1));
      here = fmaxf(here, shuffle_xor(here, 2));
      float const next = fmaxf(reference[row], here);
      float const zero = next == -infinity ? 0.0F : next;  // a row that has seen nothing yet has no reference
      factor[row] = fast_exp2((reference[row] - zero) * slope);
      addend[row] = __fmaf_rn(-zero, slope, log2_of_top);
      reference[row] = next;
    }
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      scores[i] = fast_exp2(__fmaf_rn(scores[i], slope, addend[i / 2 % 2]));
    }
    total[0] = __fmaf_rn(total[0], factor[0], sum_of_row(scores, 0));
    total[1] = __fmaf_rn(total[1], factor[1], sum_of_row(scores, 1));
  }

  /// Packs weights into left operands of 64 x 16, four registers for each 16 keys.
  __device__ __forceinline__ static void pack(float const (&taken)[registers], std::uint32_t (&packed)[steps][4]) {
#pragma unroll
    for (int i = 0; i < steps; ++i) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        packed[i][word] = pack_pair<T>(taken[8 * i + 2 * word], taken[8 * i + 2 * word + 1]);
      }
    }
  }

  /// The sum of a row's weights, from its four lanes.
  [[nodiscard]] __device__ __forceinline__ float whole_total(int row) const {
    float const two = total[row] + shuffle_xor(total[row], 1);
    return two + shuffle_xor(two, 2);
  }

 private:
  template <tile_mask Mask>
  __device__ __forceinline__ static void hide(float (&scores)[registers], key_limits const& limits) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      int const key = i / 4 * 8 + i % 2;
      bool is_seen = key < limits.high[i / 2 % 2];
      if constexpr (Mask == tile_mask::both) {
        is_seen = is_seen && key - i / 2 % 2 * 8 >= limits.low;
      }
      scores[i] = is_seen ? scores[i] : -infinity;
    }
  }

  /// The largest score of a row, by two chains of maxima that do not wait for each other.
  [[nodiscard]] __device__ __forceinline__ static float largest_of_row(float const (&scores)[registers], int row) {
    float even = scores[2 * row];
    float odd = scores[2 * row + 1];
#pragma unroll
    for (int i = 2 * row + 4; i < registers; i += 4) {
      even = fmaxf(even, scores[i]);
      odd = fmaxf(odd, scores[i + 1]);
    }
    return fmaxf(even, odd);
  }
  [[nodiscard]] __device__ __forceinline__ static float sum_of_row(float const (&weights)[registers], int row) {
    float even = weights[2 * row];
    float odd = weights[2 * row + 1];
#pragma unroll
    for (int i = 2 * row + 4; i < registers; i += 4) {
      even += weights[i];
      odd += weights[i + 1];
    }
    return even + odd;
  }
};

}  // namespace v0
}  // namespace tessera
