// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `decode_columns`: the running attention of a warp over up to eight rows of queries, which are the columns of its
/// tensor core products (mma.sync.m16n8k16): sums of weights and of weighted values, relative to a reference.
///
///     scores   rows: tokens       depth: channels    columns: queries         16 tokens at a time
///     values   rows: channels     depth: tokens      columns: queries
///
/// With g = lane / 4 and t = lane % 4 a lane has scores and outputs of queries 2t and 2t + 1: [0] and [1] are those of
/// row g, [2] and [3] those of row g + 8. Scores are in base 2. Since queries are columns, a query's largest score and
/// sums run down a column, over the eight lanes of it, and not along a row, as the words for rows of sums do (RowWords,
/// concepts/tile_mma.hpp).
///
/// The reference of a query is an earlier largest score. Only if a score is more than 8 above it (a factor of 2^8), the
/// warp's lanes agree on a new reference and rescale the sums. Weights are at most 2^8, and one of them is 1.
#pragma once

#include <cstdint>

#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/cuda/pairs.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// Rows of queries that one read of keys and values serves.
inline constexpr int decode_rows = 8;

/// Sums of weights and of weighted values of a part of a row, which a warp leaves in shared memory. A lane merges those
/// of several warps. merge_factors() of online_softmax does the same with factors that may be denormal; here they
/// are 0. Channels: how many channels of the values a lane has.
template <int Channels>
struct relative_sums {
  static constexpr float no_reference = -3.0e38F;  ///< below all finite scores; its difference to itself is 0

  float reference;  ///< what scores are relative to, in base 2: no_reference or minus infinity before the first one
  float sum;        ///< the sum of weights, 2^(score - reference)
  float totals[Channels];  ///< the sum of weighted values of each channel

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

template <int Channels>
struct decode_columns {
  static constexpr int strips = Channels / 16;
  static constexpr float no_reference = relative_sums<1>::no_reference;  ///< below all finite scores
  static constexpr float headroom = 8.0F;  ///< how far a score may be above the reference, in base 2

  float outputs[strips][4];  ///< sums of weighted values
  float sum[2];              ///< sums of the lane's weights, for its two columns
  float reference[2];        ///< references, the same in all lanes of a column

  /// Sets the state before the first key.
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& strip : outputs) {
#pragma unroll
      for (float& output : strip) {
        output = 0.0F;
      }
    }
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      sum[column] = 0.0F;
      reference[column] = no_reference;
    }
  }

  /// The largest of the lane's scores in each of its two columns.
  template <int Tiles>
  __device__ __forceinline__ static void find_largest(float const (&scores)[Tiles][4], float (&largest)[2]) {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      largest[column] = fmaxf(scores[0][column], scores[0][2 + column]);
#pragma unroll
      for (int tile = 1; tile < Tiles; ++tile) {
        largest[column] = fmaxf(largest[column], fmaxf(scores[tile][column], scores[tile][2 + column]));
      }
    }
  }
  /// Whether a score is too far above its reference.
  [[nodiscard]] __device__ __forceinline__ bool are_beyond(float const (&largest)[2]) const {
    return largest[0] > reference[0] + headroom || largest[1] > reference[1] + headroom;
  }
  /// The largest value of the eight lanes that have a column.
  __device__ __forceinline__ static float largest_of_column(float value) {
    value = fmaxf(value, shuffle_xor(value, 4));
    value = fmaxf(value, shuffle_xor(value, 8));
    return fmaxf(value, shuffle_xor(value, 16));
  }
  /// The sum over the eight lanes that have a column.
  __device__ __forceinline__ static float sum_of_column(float value) {
    value += shuffle_xor(value, 4);
    value += shuffle_xor(value, 8);
    return value + shuffle_xor(value, 16);
  }

  /// Raises references to the largest scores, by all lanes, and rescales all sums; also multiplies them by 2^more.
  /// Returns in `factor` what they were multiplied by.
  __device__ __forceinline__ void raise(float const (&largest)[2], float more, float (&factor)[2]) {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      float const raised = fmaxf(reference[column], largest_of_column(largest[column]));
      factor[column] = fast_exp2(reference[column] - raised + more);
      reference[column] = raised;
      sum[column] *= factor[column];
    }
#pragma unroll
    for (auto& strip : outputs) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        strip[i] *= factor[i % 2];
      }
    }
  }

  /// Turns scores into weights, and returns their sums.
  template <int Tiles>
  __device__ __forceinline__ static float2 weigh(float (&scores)[Tiles][4], float first_reference,
                                                 float second_reference) {
    float2 sums{0.0F, 0.0F};
#pragma unroll
    for (auto& tile : scores) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        tile[i] = fast_exp2(tile[i] - (i % 2 == 0 ? first_reference : second_reference));
      }
      sums.x += tile[0] + tile[2];
      sums.y += tile[1] + tile[3];
    }
    return sums;
  }

  /// Turns weights into the second operands of products with values.
  template <class T, int Tiles>
  __device__ __forceinline__ static void make_operands(float const (&weights)[Tiles][4],
                                                       std::uint32_t (&operands)[Tiles][2]) {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
      operands[tile][0] = transposed_matrix(pack_pair<T>(weights[tile][0], weights[tile][1]));
      operands[tile][1] = transposed_matrix(pack_pair<T>(weights[tile][2], weights[tile][3]));
    }
  }

  /// Adds the products of queries and 16-bit keys, 16 tokens a tile. `keys(row, strip, half)`: where eight channels of
  /// a token lie.
  template <class T, int Tiles, class Keys>
  __device__ __forceinline__ static void add_keys(float (&sums)[Tiles][4], std::uint32_t const (&queries)[strips][2],
                                                  Keys const& keys, int lane) {
#pragma unroll
    for (int strip = 0; strip < strips; ++strip) {
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile) {
        std::uint32_t operand[4];
        load_matrix_x4(operand, keys(16 * tile + lane % 16, strip, lane / 16));
        warp_mma<T>::multiply(sums[tile], operand, queries[strip]);
      }
    }
  }
  /// Adds the products of weights and 16-bit values, 16 tokens a tile. `values(row, strip, half)`: where eight channels
  /// of a token lie.
  template <class T, int Tiles, class Values>
  __device__ __forceinline__ static void add_values(float (&sums)[strips][4], std::uint32_t const (&weights)[Tiles][2],
                                                    Values const& values, int lane) {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int strip = 0; strip < strips; ++strip) {
        std::uint32_t operand[4];
        load_matrix_x4_transposed(operand, values(16 * tile + lane % 8 + lane / 16 * 8, strip, lane / 8 % 2));
        warp_mma<T>::multiply(sums[strip], operand, weights[tile]);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
