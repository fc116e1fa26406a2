// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `quantize_lanes`: what the lanes of quantize_heads do with the elements that they hold, 16 bytes of each of 8 tokens
/// of a tile: bring them, add them up and find their range for summaries, and make codes of them.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention_operands.hpp>
#include <tessera/program/quantize_schedule.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/reduce/finite_magnitude.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// T: bfloat16 or float16. Channels: 64 or 128.
template <class T, int Channels>
struct quantize_lanes {
  static_assert(sizeof(T) == 2 && (Channels == 64 || Channels == 128),
                "tessera: quantize_heads takes 64 or 128 channels of 16 bits");
  static constexpr int lanes = 2 * Channels;
  static constexpr int tile = static_cast<int>(attention_padding);
  static constexpr int rows = 16;             ///< of tokens, that lanes hold at a time
  static constexpr int passes = tile / rows;  ///< 8
  static constexpr int vector = 8;            ///< channels of a lane
  static constexpr int row_lanes = Channels / vector;
  static constexpr int warps = lanes / 32;
  static constexpr int parts = 8;  ///< sums of a channel that warps leave to each other
  static_assert(passes == 8, "tessera: quantize_heads exchanges 8 numbers of each lane");

  using pair = std::uint32_t;  ///< of values as they are stored

  struct larger_or_nan {
    __device__ __forceinline__ float operator()(float a, float b) const { return maximum_or_nan(a, b); }
  };
  struct smaller_or_nan {
    __device__ __forceinline__ float operator()(float a, float b) const { return minimum_or_nan(a, b); }
  };
  struct sum_of_two {
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
  };

  /// Where a lane's tokens are, for all but codes of values: row + 16 i. A warp holds rows r and r + 8, and with 64
  /// channels r + 1 and r + 9: two that share a scale of queries; either all that share one of keys, or half of them.
  struct place {
    int row;
    int channel;
    TESSERA_FN explicit place(int lane)
        : row(lane / 32 * (warps == 4 ? 2 : 1) + (warps == 4 ? lane / 8 % 2 : 0) + lane / 16 % 2 * 8),
          channel(lane % row_lanes * vector) {}
  };

  // Of one head.

  __device__ __forceinline__ static T const* rows_of(head_view<T const> const& heads, std::int32_t head) {
    const auto count = static_cast<std::int32_t>(heads.extents[1]);
    return heads.data + head / count * heads.strides[0] + head % count * heads.strides[1];
  }
  /// Tokens of a tile that there are.
  __device__ __forceinline__ static std::int32_t tokens_of(sequence_lengths const& lengths,
                                                           head_view<T const> const& heads, quantize_work work) {
    const std::int64_t sequence = work.head / static_cast<std::int32_t>(heads.extents[1]);
    const std::int64_t left = length_of(lengths, sequence, heads.extents[2]) - std::int64_t{work.tile} * tile;
    return static_cast<std::int32_t>(clamp(left, std::int64_t{0}, std::int64_t{tile}));
  }

  enum class rows_beyond { are_zeros, are_the_last };

  template <bool IsLast, rows_beyond Beyond = rows_beyond::are_zeros>
  __device__ __forceinline__ static void load(T const* from, std::int64_t stride, place at, std::int32_t tokens,
                                              pair (&words)[passes][4]) {
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      const int wanted = i * rows + at.row;
      const int row = Beyond == rows_beyond::are_the_last ? min(wanted, tokens - 1) : wanted;
      uint4 found{0, 0, 0, 0};
      if (Beyond == rows_beyond::are_the_last ? tokens > 0 : row < tokens) {
        auto const* const address = reinterpret_cast<uint4 const*>(from + row * stride + at.channel);
        found = IsLast ? load_once(address) : load_from_l2(address);
      }
      words[i][0] = found.x;
      words[i][1] = found.y;
      words[i][2] = found.z;
      words[i][3] = found.w;
    }
  }
  __device__ __forceinline__ static T const* tile_of(head_view<T const> const& heads, quantize_work work) {
    return rows_of(heads, work.head) + std::int64_t{work.tile} * tile * heads.strides[2];
  }
  __device__ __forceinline__ static void load_eight(float const* from, float (&found)[vector]) {
    auto const* const address = reinterpret_cast<float4 const*>(from);
    const float4 low = load_from_l2(address);
    const float4 high = load_from_l2(address + 1);
    const float all[vector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < vector; ++i) {
      found[i] = all[i];
    }
  }
  __device__ __forceinline__ static float not_a_number() {
    return __int_as_float(0x7fffffff);
  }

  // Summaries. Channels of a head are kept in the order in which lanes have them: place t is channel_at(t).

  TESSERA_FN static constexpr int channel_at(int t) {
    return t % row_lanes * vector + t / row_lanes;
  }

  /// Of tokens in order. What is not finite counts as zero: only where there is such a value is a sum not finite at
  /// first, or where it overflows.
  __device__ __forceinline__ static void add_tokens(pair (&words)[passes][4], float (&sums)[vector]) {
#pragma unroll 1
    for (int attempt = 0; attempt < 2; ++attempt) {
      bool is_finite_sum = true;
#pragma unroll
      for (int j = 0; j < vector; ++j) {
        sums[j] = 0.0F;
#pragma unroll
        for (int i = 0; i < passes; ++i) {
          const float2 both = unpack_pair<T>(words[i][j / 2]);
          sums[j] += j % 2 == 0 ? both.x : both.y;
        }
        is_finite_sum = is_finite_sum && is_finite(sums[j]);
      }
      if (is_finite_sum) {
        return;
      }
#pragma unroll
      for (int i = 0; i < passes; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          words[i][j] = finite_halves(words[i][j]);
        }
      }
    }
  }
  /// A pair with zeros for what is not finite.
  __device__ __forceinline__ static pair finite_halves(pair word) {
    constexpr std::uint32_t exponent = std::is_same_v<T, bfloat16> ? 0x7f80U : 0x7c00U;
    const pair low = (word & exponent) == exponent ? 0 : word & 0xffffU;
    const pair high = (word >> 16 & exponent) == exponent ? 0 : word & 0xffff0000U;
    return low | high;
  }
  /// Likewise, but for rows beyond the last.
  __device__ __forceinline__ static void add_values(pair (&words)[passes][4], int row, std::int32_t tokens,
                                                    float (&sums)[vector]) {
#pragma unroll
    for (int i = 0; i < passes; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        words[i][j] = i * rows + row < tokens ? words[i][j] : 0;
      }
    }
    add_tokens(words, sums);
  }

  /// As channel_summary: NaN for one infinity or NaN.
  __device__ __forceinline__ static void find_range(pair const (&words)[passes][4], std::int32_t tokens,
                                                    float (&lowest)[vector], float (&highest)[vector]) {
#pragma unroll
    for (int i = 0; i < passes; ++i) {
#pragma unroll
      for (int j = 0; j < vector; ++j) {
        const float2 both = unpack_pair<T>(words[i][j / 2]);
        const float value = j % 2 == 0 ? both.x : both.y;
        lowest[j] = i == 0 ? value : minimum_or_nan(lowest[j], value);
        highest[j] = i == 0 ? value : maximum_or_nan(highest[j], value);
      }
    }
#pragma unroll
    for (int j = 0; j < vector; ++j) {
      const bool is_known = is_finite(lowest[j]) && is_finite(highest[j]);
      lowest[j] = tokens == 0 ? infinity : is_known ? lowest[j] : not_a_number();
      highest[j] = tokens == 0 ? -infinity : is_known ? highest[j] : not_a_number();
    }
  }
  __device__ __forceinline__ static void find_magnitudes(pair const (&words)[passes][4], float (&highest)[vector]) {
#pragma unroll
    for (int i = 0; i < passes; ++i) {
#pragma unroll
      for (int j = 0; j < vector; ++j) {
        const float2 both = unpack_pair<T>(words[i][j / 2]);
        const float value = fabsf(j % 2 == 0 ? both.x : both.y);
        highest[j] = i == 0 ? value : maximum_or_nan(highest[j], value);
      }
    }
  }

  /// What rows r and r + 8 make together, for all lanes of the block.
  template <class Combine>
  __device__ __forceinline__ static void leave(cuda_block<lanes> const& group, float (&numbers)[vector],
                                               Combine combine, float (&shared)[parts][Channels]) {
    const place at(group.lane);
#pragma unroll
    for (int j = 0; j < vector; ++j) {
      numbers[j] = combine(numbers[j], __shfl_xor_sync(0xffffffffU, numbers[j], 16));
      if (group.lane % 32 < 16) {
        shared[at.row][j * row_lanes + group.lane % row_lanes] = numbers[j];
      }
    }
  }
  __device__ __forceinline__ static void take_parts(float const (&shared)[parts][Channels], int t,
                                                    float (&found)[parts]) {
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      found[i] = shared[i][t];
    }
  }
  template <class Combine>
  __device__ __forceinline__ static float join_parts(float const (&shared)[parts][Channels], int t, Combine combine) {
    float joined = shared[0][t];
#pragma unroll
    for (int i = 1; i < parts; ++i) {
      joined = combine(joined, shared[i][t]);
    }
    return joined;
  }

  __device__ __forceinline__ static void add(float4& sum, float4 const& value) {
    sum.x += value.x;
    sum.y += value.y;
    sum.z += value.z;
    sum.w += value.w;
  }
  /// Of `count` tiles of a head, in any order, until 8 are left. Lanes take 4 channels each.
  template <class Combine>
  __device__ __forceinline__ static void join_tiles(cuda_block<lanes> const& group, float const* from,
                                                    std::int32_t count, Combine combine,
                                                    float (&shared)[parts][Channels]) {
    constexpr int quads = Channels / 4;
    const int part = group.lane / quads;
    const int quad = group.lane % quads;
    auto const* const tiles = reinterpret_cast<float4 const*>(from);
    float4 joined = load_from_l2(tiles + std::int64_t{min(part, count - 1)} * quads + quad);
#pragma unroll 4
    for (std::int32_t which = part + parts; which < count; which += parts) {
      const float4 next = load_from_l2(tiles + std::int64_t{which} * quads + quad);
      joined = {combine(joined.x, next.x), combine(joined.y, next.y), combine(joined.z, next.z),
                combine(joined.w, next.w)};
    }
    *reinterpret_cast<float4*>(&shared[part][4 * quad]) = joined;
  }

  // Codes of queries and keys.

  /// The largest magnitude of a token's channels of this lane, or NaN.
  template <bool HasMean>
  __device__ __forceinline__ static float magnitude_of(pair const (&words)[4], float const (&mean)[vector]) {
    float largest = 0.0F;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 value = unpack_pair<T>(words[j]);
      largest = maximum_or_nan(largest, fabsf(HasMean ? value.x - mean[2 * j] : value.x));
      largest = maximum_or_nan(largest, fabsf(HasMean ? value.y - mean[2 * j + 1] : value.y));
    }
    return largest;
  }
  /// Of a group whose largest code is `Highest`.
  template <int Highest>
  __device__ __forceinline__ static code_scale scale_of(float magnitude) {
    const finite_magnitude_reducer known;
    return fit_scale(known.value(__float_as_uint(magnitude)), static_cast<float>(Highest));
  }

  /// 8 codes of a token, by a reciprocal of 0 zeros. The sum of 1.5 2^23 and a number has the nearest integer, of two
  /// the even one, in its lower bits.
  template <bool HasMean>
  __device__ __forceinline__ static uint2 encode(pair const (&words)[4], float const (&mean)[vector],
                                                 float reciprocal) {
    constexpr float magic = 12582912.0F;
    std::uint32_t codes[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t bits[4];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at = 4 * half + 2 * j;
        const float2 value = unpack_pair<T>(computed_again(words[2 * half + j]));
        bits[2 * j] = __float_as_uint(__fadd_rn(__fmul_rn(HasMean ? value.x - mean[at] : value.x, reciprocal), magic));
        bits[2 * j + 1] =
            __float_as_uint(__fadd_rn(__fmul_rn(HasMean ? value.y - mean[at + 1] : value.y, reciprocal), magic));
      }
      const std::uint32_t four =
          pick_bytes(pick_bytes(bits[0], bits[1], 0x0040), pick_bytes(bits[2], bits[3], 0x0040), 0x5410);
      codes[half] = reciprocal == 0.0F ? 0 : four;
    }
    return {codes[0], codes[1]};
  }

  /// 8 numbers of each lane become one of a lane, of number `number_of<A, B, C>`: combined with those of lanes that
  /// differ in bits A, B and C.
  template <int A, int B, int C, class Combine>
  __device__ __forceinline__ static float scatter(float const (&numbers)[passes], int lane, Combine combine) {
    float four[4];
    float two[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float other = __shfl_xor_sync(0xffffffffU, (lane & A) != 0 ? numbers[i] : numbers[i + 4], A);
      four[i] = combine((lane & A) != 0 ? numbers[i + 4] : numbers[i], other);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float other = __shfl_xor_sync(0xffffffffU, (lane & B) != 0 ? four[i] : four[i + 2], B);
      two[i] = combine((lane & B) != 0 ? four[i + 2] : four[i], other);
    }
    const float other = __shfl_xor_sync(0xffffffffU, (lane & C) != 0 ? two[0] : two[1], C);
    return combine((lane & C) != 0 ? two[1] : two[0], other);
  }
  template <int A, int B, int C>
  __device__ __forceinline__ static int number_of(int lane) {
    return ((lane & A) != 0 ? 4 : 0) + ((lane & B) != 0 ? 2 : 0) + ((lane & C) != 0 ? 1 : 0);
  }

  /// Of 8 channels from 8 (lane % 8) on, of 64 of which each lane divides by the scales of two.
  __device__ __forceinline__ static void find_reciprocals(float const* scales, int lane, float (&reciprocals)[vector]) {
    const float low = reciprocal_of(load_from_l2(scales + lane));
    const float high = reciprocal_of(load_from_l2(scales + 32 + lane));
#pragma unroll
    for (int j = 0; j < vector; ++j) {
      const int source = lane % 4 * vector + j;
      const float of_low = __shfl_sync(0xffffffffU, low, source);
      const float of_high = __shfl_sync(0xffffffffU, high, source);
      reciprocals[j] = lane % 8 < 4 ? of_low : of_high;
    }
  }

  /// Of tokens 2 q + row_of(k) of every 16.
  TESSERA_FN static constexpr int row_of(int k) {
    return k / 2 * 8 + k % 2;
  }
  static_assert(value_place(2) == 4 && value_place(3) == 5 && value_place(10) == 6 && value_place(11) == 7,
                "tessera: tokens 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 are neighbours among codes of values");

  __device__ __forceinline__ static void load_quads(T const* from, std::int64_t stride, int first, int channel,
                                                    std::int32_t tokens, pair (&words)[2][4][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int row = first + i * rows + row_of(k);
        uint4 found{0, 0, 0, 0};
        if (row < tokens) {
          found = load_once(reinterpret_cast<uint4 const*>(from + row * stride + channel));
        }
        words[i][k][0] = found.x;
        words[i][k][1] = found.y;
        words[i][k][2] = found.z;
        words[i][k][3] = found.w;
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
