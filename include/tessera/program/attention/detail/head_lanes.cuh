// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `head_lanes`: the operations of a lane on its part of a tile of a head, 16 bytes of each of 8 tokens: loads them,
/// adds them up and finds their range for summaries, and makes codes of them.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/reduce/absolute_maximum_or_nan.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/head_view.hpp>
#include <tessera/view/sequence_starts.hpp>

namespace tessera {
inline namespace v0 {

/// Heads that are taken tile by tile, 128 tokens each.
template <class T>
struct tiled_heads {
  static constexpr std::int32_t tile = static_cast<std::int32_t>(attention_padding);  ///< tokens of a tile

  head_view<T const> heads;  ///< batch x heads x tokens x channels; or null
  sequence_lengths lengths;
  sequence_starts starts;   ///< where sequences begin that lie one behind the other
  fast_divisor heads_each;  ///< heads of a sequence

  tiled_heads() = default;
  /// Heads, the lengths of their sequences, and where these begin.
  tiled_heads(head_view<T const> const& of, sequence_lengths const& as_long, sequence_starts const& where)
      : heads(of), lengths(as_long), starts(where), heads_each(fast_divisor::of_count(of.extent(1))) {}

  /// The first element of tile `at` of a head.
  __device__ __forceinline__ T const* first(std::int32_t head, std::int32_t at) const {
    std::int32_t const sequence = head / heads_each;
    std::int64_t const start = starts.first.data == nullptr ? 0 : starts.first[sequence];
    return heads.data + sequence * heads.strides[0] + (head - sequence * heads_each.value()) * heads.strides[1] +
           (start + std::int64_t{at} * tile) * heads.strides[2];
  }
  /// How many of `tokens` tokens from tile `at` of a head on lie in memory; the others are zeros.
  [[nodiscard]] __device__ __forceinline__ std::int32_t in_memory(std::int32_t head, std::int32_t at,
                                                                  std::int32_t tokens) const {
    if (starts.first.data == nullptr) {
      return tokens;
    }
    std::int64_t const start = starts.first[head / heads_each];
    std::int64_t const left = start < 0 ? 0 : starts.total - start - std::int64_t{at} * tile;
    return static_cast<std::int32_t>(clamp(left, std::int64_t{0}, std::int64_t{tokens}));
  }
  /// How many tokens the head's sequence has.
  [[nodiscard]] __device__ __forceinline__ std::int32_t length(std::int32_t head) const {
    return static_cast<std::int32_t>(length_of(lengths, head / heads_each, heads.extents[2]));
  }
  /// How many tokens of a tile exist.
  [[nodiscard]] __device__ __forceinline__ std::int32_t tokens(std::int32_t head, std::int32_t at) const {
    return clamp(length(head) - at * tile, 0, tile);
  }
};

/// The operations of a lane. T: bfloat16 or float16. Channels: 64, 128 or 256; heads may have fewer.
template <class T, int Channels>
struct head_lanes {
  static_assert(sizeof(T) == 2 && (Channels == 64 || Channels == 128 || Channels == 256),
                "tessera: lanes hold 64, 128 or 256 channels of 16 bits");
  static constexpr int lanes = 2 * Channels;
  static constexpr int tile = tiled_heads<T>::tile;    ///< tokens of a tile
  static constexpr int rows = 16;                      ///< tokens that all lanes together take at a time
  static constexpr int passes = tile / rows;           ///< tokens of a lane: 8
  static constexpr int vector = 8;                     ///< channels of a lane
  static constexpr int row_lanes = Channels / vector;  ///< lanes that share a token
  static_assert(passes == 8, "tessera: lanes exchange 8 numbers each");

  using pair = std::uint32_t;  ///< two values as they are stored

  /// The function that gives the larger of two numbers, or NaN.
  struct larger_or_nan {
    /// The larger number, or NaN if one is NaN.
    __device__ __forceinline__ float operator()(float a, float b) const { return maximum_or_nan(a, b); }
  };
  /// The function that gives the smaller of two numbers, or NaN.
  struct smaller_or_nan {
    /// The smaller number, or NaN if one is NaN.
    __device__ __forceinline__ float operator()(float a, float b) const { return minimum_or_nan(a, b); }
  };
  /// The function that adds two numbers.
  struct sum_of_two {
    /// The sum.
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
  };

  /// Loads tokens `row` + i `Step`, with zeros for tokens that do not exist.
  template <int Step, bool IsOnce = false>
  __device__ __forceinline__ static void load(T const* from, std::int64_t stride, int row, std::int32_t tokens,
                                              pair (&words)[passes][4]) {
    T const* address = from + row * stride;
    std::int64_t const step = Step * stride;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      take<IsOnce>(address, row + i * Step < tokens, words[i]);
      address += step;
    }
  }
  /// Loads eight channels of a token, zeros if it does not exist.
  template <bool IsOnce>
  __device__ __forceinline__ static void take(T const* from, bool exists, pair (&words)[4]) {
    uint4 found{0, 0, 0, 0};
    if (exists) {
      auto const* const address = reinterpret_cast<uint4 const*>(from);
      found = IsOnce ? load_once(address) : begin_load_from_l2(address);
    }
    words[0] = found.x;
    words[1] = found.y;
    words[2] = found.z;
    words[3] = found.w;
  }
  /// Loads eight floats, zeros if they do not exist.
  __device__ __forceinline__ static void load_eight(float const* from, bool exists, float (&found)[vector]) {
    float4 low{0.0F, 0.0F, 0.0F, 0.0F};
    float4 high = low;
    if (exists) {
      auto const* const address = reinterpret_cast<float4 const*>(from);
      low = load_from_l2(address);
      high = load_from_l2(address + 1);
    }
    float const all[vector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < vector; ++i) {
      found[i] = all[i];
    }
  }
  /// Stores eight floats at a multiple of 16 bytes.
  __device__ __forceinline__ static void store_eight(float* to, float const (&numbers)[vector]) {
    reinterpret_cast<float4*>(to)[0] = {numbers[0], numbers[1], numbers[2], numbers[3]};
    reinterpret_cast<float4*>(to)[1] = {numbers[4], numbers[5], numbers[6], numbers[7]};
  }
  /// A NaN.
  __device__ __forceinline__ static float not_a_number() {
    return __int_as_float(0x7fffffff);
  }

  // Summaries.

  /// Adds up the tokens in order. Values that are not finite count as zeros: only with such a value, or where it
  /// overflows, is the first sum not finite, and then it is made again.
  __device__ __forceinline__ static void add_tokens(pair const (&words)[passes][4], float (&sums)[vector]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 sum{0.0F, 0.0F};
#pragma unroll
      for (int i = 0; i < passes; ++i) {
        add(sum, words[i][j]);
      }
      if (!is_finite(sum.x) || !is_finite(sum.y)) {
        sum = {0.0F, 0.0F};
#pragma unroll
        for (int i = 0; i < passes; ++i) {
          add(sum, finite_halves(words[i][j]));
        }
      }
      sums[2 * j] = sum.x;
      sums[2 * j + 1] = sum.y;
    }
  }
  /// Adds up the tokens of even numbers and those of odd ones, each in order as add_tokens does, and both sums.
  __device__ __forceinline__ static void add_tokens_of_parts(pair const (&words)[passes][4], float (&sums)[vector]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 const even = sum_of_every_second(words, 0, j);
      float2 const odd = sum_of_every_second(words, 1, j);
      sums[2 * j] = even.x + odd.x;
      sums[2 * j + 1] = even.y + odd.y;
    }
  }
  /// The sum of words `j` of tokens first, first + 2, ...; values that are not finite count as zeros.
  __device__ __forceinline__ static float2 sum_of_every_second(pair const (&words)[passes][4], int first, int j) {
    float2 sum{0.0F, 0.0F};
#pragma unroll
    for (int i = 0; i < passes; i += 2) {
      add(sum, words[first + i][j]);
    }
    if (!is_finite(sum.x) || !is_finite(sum.y)) {
      sum = {0.0F, 0.0F};
#pragma unroll
      for (int i = 0; i < passes; i += 2) {
        add(sum, finite_halves(words[first + i][j]));
      }
    }
    return sum;
  }
  /// Adds both halves of a pair.
  __device__ __forceinline__ static void add(float2& sum, pair word) {
    float2 const both = unpack_pair<T>(word);
    sum.x += both.x;
    sum.y += both.y;
  }
  /// A pair with zeros in place of values that are not finite.
  __device__ __forceinline__ static pair finite_halves(pair word) {
    constexpr std::uint32_t exponent = std::is_same_v<T, bfloat16> ? 0x7f80U : 0x7c00U;
    pair const low = (word & exponent) == exponent ? 0 : word & 0xffffU;
    pair const high = (word >> 16 & exponent) == exponent ? 0 : word & 0xffff0000U;
    return low | high;
  }

  /// Finds the range of the tokens that exist, like channel_summary: NaN if there is an infinity or a NaN.
  __device__ __forceinline__ static void find_range(pair const (&words)[passes][4], int row, std::int32_t tokens,
                                                    float (&lowest)[vector], float (&highest)[vector]) {
#pragma unroll
    for (int j = 0; j < vector; ++j) {
      lowest[j] = infinity;
      highest[j] = -infinity;
#pragma unroll
      for (int i = 0; i < passes; ++i) {
        float2 const both = unpack_pair<T>(words[i][j / 2]);
        float const value = j % 2 == 0 ? both.x : both.y;
        if (i * rows + row < tokens) {
          lowest[j] = minimum_or_nan(lowest[j], value);
          highest[j] = maximum_or_nan(highest[j], value);
        }
      }
      bool const is_known = row >= tokens || (is_finite(lowest[j]) && is_finite(highest[j]));
      lowest[j] = is_known ? lowest[j] : not_a_number();
      highest[j] = is_known ? highest[j] : not_a_number();
    }
  }
  /// Finds the largest magnitudes of each pair of channels over the tokens.
  __device__ __forceinline__ static void find_magnitudes(pair const (&words)[passes][4], pair (&highest)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      highest[j] = magnitudes(words[0][j]);
#pragma unroll
      for (int i = 1; i < passes; ++i) {
        highest[j] = larger_pair_or_nan<T>(highest[j], magnitudes(words[i][j]));
      }
    }
  }
  /// A pair of values without their signs.
  __device__ __forceinline__ static pair magnitudes(pair word) {
    return word & 0x7fff7fffU;
  }

  // Codes of queries and keys.

  /// The largest magnitude of a token's channels of this lane, or NaN.
  __device__ __forceinline__ static float magnitude_of(pair const (&words)[4]) {
    pair const low = larger_pair_or_nan<T>(magnitudes(words[0]), magnitudes(words[1]));
    pair const high = larger_pair_or_nan<T>(magnitudes(words[2]), magnitudes(words[3]));
    float2 const both = unpack_pair<T>(larger_pair_or_nan<T>(low, high));
    return maximum_or_nan(both.x, both.y);
  }
  /// The largest magnitude of a token's channels of this lane minus a mean, or NaN.
  __device__ __forceinline__ static float magnitude_of(pair const (&words)[4], float const (&mean)[vector]) {
    float largest = 0.0F;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 const value = unpack_pair<T>(words[j]);
      largest = maximum_or_nan(largest, fabsf(value.x - mean[2 * j]));
      largest = maximum_or_nan(largest, fabsf(value.y - mean[2 * j + 1]));
    }
    return largest;
  }
  /// The largest magnitude of a token's channels of this lane, minus a mean if there is one, or NaN.
  template <bool HasMean>
  __device__ __forceinline__ static float magnitude_less(pair const (&words)[4], float const (&mean)[vector]) {
    if constexpr (HasMean) {
      return magnitude_of(words, mean);
    } else {
      return magnitude_of(words);
    }
  }
  /// The scale of a group with this largest magnitude; its largest code is `highest`.
  __device__ __forceinline__ static code_scale scale_of(float magnitude, float highest) {
    absolute_maximum_or_nan_reducer const known;
    return fit_scale(known.value(__float_as_uint(magnitude)), highest);
  }

  /// The codes of 8 channels of a token; zeros for a reciprocal of 0. Code: std::int8_t or float8_e4m3.
  template <class Code>
  __device__ __forceinline__ static uint2 encode(pair const (&words)[4], float const (&mean)[vector],
                                                 float reciprocal) {
    std::uint32_t codes[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float rounded[4];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        int const at = 4 * half + 2 * j;
        float2 const value = unpack_pair<T>(recompute(words[2 * half + j]));
        rounded[2 * j] = round_code<Code>(__fmul_rn(value.x - mean[at], reciprocal));
        rounded[2 * j + 1] = round_code<Code>(__fmul_rn(value.y - mean[at + 1], reciprocal));
      }
      std::uint32_t const four = pack_codes<Code>(rounded);
      codes[half] = reciprocal == 0.0F ? 0 : four;
    }
    return {codes[0], codes[1]};
  }
  /// The sum of 1.5 2^23 and a number, which has the nearest integer (ties to even) in its lower bits; the number
  /// itself where pack_codes() rounds it.
  template <class Code>
  __device__ __forceinline__ static float round_code(float scaled) {
    constexpr float magic = 12582912.0F;
    return std::is_same_v<Code, float8_e4m3> ? scaled : __fadd_rn(scaled, magic);
  }
  /// Four codes that round_code() has begun.
  template <class Code>
  __device__ __forceinline__ static std::uint32_t pack_codes(float const (&rounded)[4]) {
    if constexpr (std::is_same_v<Code, float8_e4m3>) {
      return pack_four_e4m3(rounded[0], rounded[1], rounded[2], rounded[3]);
    } else {
      return pick_bytes(pick_bytes(__float_as_uint(rounded[0]), __float_as_uint(rounded[1]), 0x0040),
                        pick_bytes(__float_as_uint(rounded[2]), __float_as_uint(rounded[3]), 0x0040), 0x5410);
    }
  }
  /// The codes of 8 channels of a token, without a mean.
  template <class Code>
  __device__ __forceinline__ static uint2 encode(pair const (&words)[4], float reciprocal) {
    constexpr float no_mean[vector] = {};
    return encode<Code>(words, no_mean, reciprocal);
  }
  /// The codes of 8 channels of a token, minus a mean if there is one.
  template <class Code, bool HasMean>
  __device__ __forceinline__ static uint2 encode_less(pair const (&words)[4], float const (&mean)[vector],
                                                      float reciprocal) {
    if constexpr (HasMean) {
      return encode<Code>(words, mean, reciprocal);
    } else {
      return encode<Code>(words, reciprocal);
    }
  }

  /// Combines four numbers over four lanes, those that differ in bits A and B. Each lane returns the total of one
  /// number: of the number that its bits spell, A being the higher one.
  template <int A, int B, class Combine>
  __device__ __forceinline__ static float scatter(float const (&numbers)[4], int lane, Combine combine) {
    float two[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float const other = shuffle_xor((lane & A) != 0 ? numbers[i] : numbers[i + 2], A);
      two[i] = combine((lane & A) != 0 ? numbers[i + 2] : numbers[i], other);
    }
    float const other = shuffle_xor((lane & B) != 0 ? two[0] : two[1], B);
    return combine((lane & B) != 0 ? two[1] : two[0], other);
  }
  /// Combines eight numbers over eight lanes, those that differ in bits A, B and C; A is the highest.
  template <int A, int B, int C, class Combine>
  __device__ __forceinline__ static float scatter(float const (&numbers)[8], int lane, Combine combine) {
    float four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float const other = shuffle_xor((lane & A) != 0 ? numbers[i] : numbers[i + 4], A);
      four[i] = combine((lane & A) != 0 ? numbers[i + 4] : numbers[i], other);
    }
    return scatter<B, C>(four, lane, combine);
  }
};

}  // namespace v0
}  // namespace tessera
