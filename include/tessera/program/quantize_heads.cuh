// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `quantize_heads`: codes and scales of queries, keys and values in one launch: the bits of summarize_heads,
/// finish_summaries, encode_tokens and encode_values.
///
/// A block takes a tile of 128 tokens of a head after the other, in the order of quantize_schedule.hpp: sums and ranges
/// of keys and values first; who does the last of a head adds up all of them; codes of keys and values wait for that.
/// Lanes hold 16 bytes of a token each, of 8 tokens.
///
/// Bytes for each channel of a token, of queries, keys and values together: 2 + 2 + 2 read and 1 + 1 + 1 written; keys
/// and values are read again, from L2 where a section of heads fits. At the rate of a copy, 4.2 TB/s on an H200, these
/// 9 bytes for each of 8 x 16 heads of 4096 tokens of 128 channels take 144 us.
///
/// Instructions for an element, about: 2 to summarize it; 6 for a key's or a query's code: widen, subtract the mean,
/// take into the largest, multiply, round by adding 1.5 2^23 (then the lower byte is the code), most of one to pack; 3
/// for a value's.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention_operands.hpp>
#include <tessera/program/quantize_schedule.hpp>
#include <tessera/program/summarize_heads.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/reduce/finite_magnitude.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/device_count.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// Means that are subtracted before coding.
struct quantized_means {
  bool of_keys;
  bool of_values;
};

/// T: bfloat16 or float16; rows of inputs begin at multiples of 16 bytes and their channels lie next to each other.
/// Channels: 64 or 128. Largest: code of queries and keys.
template <class T, int Channels, int Largest, quantized_means Means>
struct quantize_heads {
  static_assert(sizeof(T) == 2 && (Channels == 64 || Channels == 128),
                "tessera: quantize_heads takes 64 or 128 channels of 16 bits");
  static constexpr int lanes = 2 * Channels;
  static constexpr bool is_persistent = true;
  static constexpr int blocks_per_multiprocessor = 768 / lanes;

  static constexpr int tile = static_cast<int>(attention_padding);
  static constexpr int rows = 16;             ///< of tokens, that lanes hold at a time
  static constexpr int passes = tile / rows;  ///< 8
  static constexpr int vector = 8;            ///< channels of a lane
  static constexpr int row_lanes = Channels / vector;
  static constexpr int warps = lanes / 32;
  static constexpr int parts = 8;  ///< sums of a channel that warps leave to each other
  static_assert(passes == 8, "tessera: quantize_heads exchanges 8 numbers of each lane");

  struct alignas(16) scratch_type {
    union {
      float sums[3][parts][Channels];
      uint4 codes[Channels][tile / 16];
    };
    float magnitude[warps];
    quantize_work work;
    std::uint32_t arrived;
  };

  /// Of values; where no mean is subtracted, the largest magnitudes are enough.
  struct summary_planes {
    float* lowest;
    float* highest;
    float* sum;
  };

  quantize_schedule schedule;
  head_view<T const> queries;  ///< batch x query heads x tokens x channels
  head_view<T const> keys;     ///< batch x key heads x tokens x channels
  head_view<T const> values;   ///< likewise
  sequence_lengths query_lengths;
  sequence_lengths key_lengths;
  float factor;         ///< scales of queries are multiplied by it after codes are made
  float softmax_scale;  ///< of mean_scores
  std::int8_t* query_codes;
  float* query_scales;
  float* mean_scores;  ///< batch x query heads x tokens, or null
  std::int8_t* key_codes;
  float* key_scales;
  float* key_mean;  ///< if Means.of_keys
  float8_e4m3* value_codes;
  float* value_scales;
  float* value_mean;         ///< if Means.of_values
  float* key_summaries;      ///< batch x key heads x tiles x channels
  float* value_summaries;    ///< 3 times as many
  std::uint32_t* taken;      ///< works that were handed out: 0 at launch
  std::uint32_t* summaries;  ///< batch x key heads, of keys and of values: tiles that were summarized: 0 at launch

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    std::uint32_t next = group.lane == 0 ? atomicAdd(taken, 1U) : 0;
    while (true) {
      if (group.lane == 0) {
        scratch.work = schedule.at(static_cast<std::int32_t>(next));
      }
      group.sync();
      const quantize_work work = scratch.work;
      if (work.task == quantize_task::none) {
        return;
      }
      if (group.lane == 0) {
        next = atomicAdd(taken, 1U);  // needed when this work is done
      }
      do_work(group, work, scratch);
      group.sync();
    }
  }

 private:
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

  __device__ __forceinline__ void do_work(cuda_block<lanes> const& group, quantize_work work,
                                          scratch_type& scratch) const {
    switch (work.task) {
      case quantize_task::summarize_keys:
        if constexpr (Means.of_keys) {
          summarize_keys(group, work, scratch);
        }
        break;
      case quantize_task::summarize_values:
        summarize_values(group, work, scratch);
        break;
      case quantize_task::queries:
        encode_queries(group, work);
        break;
      case quantize_task::keys:
        encode_keys(group, work, scratch);
        break;
      case quantize_task::values:
        encode_values(group, work, scratch);
        break;
      case quantize_task::none:
        break;
    }
  }

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

  __device__ __forceinline__ void summarize_keys(cuda_block<lanes> const& group, quantize_work work,
                                                 scratch_type& scratch) const {
    const place at(group.lane);
    pair words[passes][4];
    load<false>(tile_of(keys, work), keys.strides[2], at, tokens_of(key_lengths, keys, work), words);
    float sums[vector];
    add_tokens(words, sums);
    leave(group, sums, sum_of_two{}, scratch.sums[0]);
    group.sync();
    if (group.lane < Channels) {
      float found[parts];
      take_parts(scratch.sums[0], group.lane, found);
      key_summaries[(std::int64_t{work.head} * schedule.key_tiles + work.tile) * Channels + group.lane] =
          detail::add_halves(found);
    }
    if (is_last_of_head(group, work.head, 0, scratch)) {
      finish_keys(group, work.head, scratch);
    }
  }

  __device__ __forceinline__ void summarize_values(cuda_block<lanes> const& group, quantize_work work,
                                                   scratch_type& scratch) const {
    const place at(group.lane);
    const std::int32_t tokens = tokens_of(key_lengths, values, work);
    const summary_planes planes = value_planes();
    const std::int64_t to = (std::int64_t{work.head} * schedule.key_tiles + work.tile) * Channels + group.lane;
    pair words[passes][4];
    load<false, rows_beyond::are_the_last>(tile_of(values, work), values.strides[2], at, tokens, words);
    float highest[vector];
    if constexpr (Means.of_values) {
      float lowest[vector];
      find_range(words, tokens, lowest, highest);
      leave(group, lowest, smaller_or_nan{}, scratch.sums[0]);
      leave(group, highest, larger_or_nan{}, scratch.sums[1]);
      float sums[vector];
      add_values(words, at.row, tokens, sums);
      leave(group, sums, sum_of_two{}, scratch.sums[2]);
    } else {
      find_magnitudes(words, highest);
      leave(group, highest, larger_or_nan{}, scratch.sums[1]);
    }
    group.sync();
    if (group.lane < Channels) {
      planes.highest[to] = join_parts(scratch.sums[1], group.lane, larger_or_nan{});
      if constexpr (Means.of_values) {
        planes.lowest[to] = join_parts(scratch.sums[0], group.lane, smaller_or_nan{});
        float found[parts];
        take_parts(scratch.sums[2], group.lane, found);
        planes.sum[to] = detail::add_halves(found);
      }
    }
    if (is_last_of_head(group, work.head, 1, scratch)) {
      finish_values(group, work.head, scratch);
    }
  }

  [[nodiscard]] __device__ __forceinline__ summary_planes value_planes() const {
    const std::int64_t size = std::int64_t{schedule.key_heads} * schedule.key_tiles * Channels;
    return {value_summaries + size, value_summaries, value_summaries + 2 * size};
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

  /// Whether this block's was the last tile of a head. `kind`: 0 for keys, 1 for values.
  __device__ __forceinline__ bool is_last_of_head(cuda_block<lanes> const& group, std::int32_t head, int kind,
                                                  scratch_type& scratch) const {
    group.sync();
    if (group.lane == 0) {
      scratch.arrived = arrive_on_device(summaries + 2 * std::int64_t{head} + kind);
    }
    group.sync();
    return scratch.arrived + 1 == static_cast<std::uint32_t>(schedule.key_tiles);
  }
  __device__ __forceinline__ void publish(cuda_block<lanes> const& group, std::int32_t head, int kind) const {
    group.sync();
    if (group.lane == 0) {
      publish_on_device(summaries + 2 * std::int64_t{head} + kind, static_cast<std::uint32_t>(schedule.key_tiles) + 1);
    }
  }
  __device__ __forceinline__ void await(cuda_block<lanes> const& group, std::int32_t head, int kind) const {
    if (group.lane == 0) {
      await_on_device(summaries + 2 * std::int64_t{head} + kind, static_cast<std::uint32_t>(schedule.key_tiles) + 1);
    }
    group.sync();
  }

  [[nodiscard]] __device__ __forceinline__ float token_count(std::int32_t head) const {
    const std::int64_t sequence = head / static_cast<std::int32_t>(values_or_keys().extents[1]);
    return static_cast<float>(length_of(key_lengths, sequence, values_or_keys().extents[2]));
  }
  [[nodiscard]] __device__ __forceinline__ head_view<T const> const& values_or_keys() const {
    return keys.data != nullptr ? keys : values;
  }

  __device__ __forceinline__ void finish_keys(cuda_block<lanes> const& group, std::int32_t head,
                                              scratch_type& scratch) const {
    add_tiles(group, key_summaries + std::int64_t{head} * schedule.key_tiles * Channels, scratch.sums[0]);
    group.sync();
    if (group.lane < Channels) {
      key_mean[std::int64_t{head} * Channels + channel_at(group.lane)] = mean_of(scratch.sums[0], group.lane, head);
    }
    publish(group, head, 0);
  }

  __device__ __forceinline__ void finish_values(cuda_block<lanes> const& group, std::int32_t head,
                                                scratch_type& scratch) const {
    const std::int64_t first = std::int64_t{head} * schedule.key_tiles * Channels;
    const summary_planes planes = value_planes();
    join_tiles(group, planes.highest + first, larger_or_nan{}, scratch.sums[1]);
    if constexpr (Means.of_values) {
      join_tiles(group, planes.lowest + first, smaller_or_nan{}, scratch.sums[0]);
      add_tiles(group, planes.sum + first, scratch.sums[2]);
    }
    group.sync();
    if (group.lane < Channels) {
      const std::int64_t to = std::int64_t{head} * Channels + channel_at(group.lane);
      float magnitude = join_parts(scratch.sums[1], group.lane, larger_or_nan{});
      if constexpr (Means.of_values) {
        const float mean = mean_of(scratch.sums[2], group.lane, head);
        const float lowest = join_parts(scratch.sums[0], group.lane, smaller_or_nan{});
        value_mean[to] = mean;
        magnitude = channel_summary{0.0F, lowest, magnitude}.magnitude(mean);
      }
      value_scales[to] = scale_of<448>(magnitude).scale;  // the largest e4m3
    }
    publish(group, head, 1);
  }

  __device__ __forceinline__ float mean_of(float const (&shared)[parts][Channels], int t, std::int32_t head) const {
    const float count = token_count(head);
    float found[parts];
    take_parts(shared, t, found);
    const float mean = count > 0.0F ? detail::add_halves(found) / count : 0.0F;
    return is_finite(mean) ? mean : 0.0F;
  }

  /// 32 sums over all tiles of a head, of which 8 are left. Lanes take 4 channels each.
  __device__ __forceinline__ void add_tiles(cuda_block<lanes> const& group, float const* from,
                                            float (&shared)[parts][Channels]) const {
    constexpr int quads = Channels / 4;
    const int part = group.lane / quads;
    const int quad = group.lane % quads;
    auto const* const tiles = reinterpret_cast<float4 const*>(from);
    float4 sums[4] = {};
    for (std::int32_t at = 0; at < schedule.key_tiles; at += 4 * parts) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int32_t which = at + part + parts * i;
        if (which < schedule.key_tiles) {
          add(sums[i], load_from_l2(tiles + std::int64_t{which} * quads + quad));
        }
      }
    }
    add(sums[0], sums[2]);
    add(sums[1], sums[3]);
    add(sums[0], sums[1]);
    *reinterpret_cast<float4*>(&shared[part][4 * quad]) = sums[0];
  }
  __device__ __forceinline__ static void add(float4& sum, float4 const& value) {
    sum.x += value.x;
    sum.y += value.y;
    sum.z += value.z;
    sum.w += value.w;
  }
  /// Likewise, in any order.
  template <class Combine>
  __device__ __forceinline__ void join_tiles(cuda_block<lanes> const& group, float const* from, Combine combine,
                                             float (&shared)[parts][Channels]) const {
    constexpr int quads = Channels / 4;
    const int part = group.lane / quads;
    const int quad = group.lane % quads;
    auto const* const tiles = reinterpret_cast<float4 const*>(from);
    float4 joined = load_from_l2(tiles + std::int64_t{min(part, schedule.key_tiles - 1)} * quads + quad);
#pragma unroll 4
    for (std::int32_t which = part + parts; which < schedule.key_tiles; which += parts) {
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

  __device__ __forceinline__ void encode_queries(cuda_block<lanes> const& group, quantize_work work) const {
    constexpr int second = row_lanes == 16 ? 8 : 4;
    constexpr int third = second / 2;
    const place at(group.lane);
    const int lane = group.lane % 32;
    pair words[passes][4];
    const std::int32_t tokens = tokens_of(query_lengths, queries, work);
    load<true>(tile_of(queries, work), queries.strides[2], at, tokens, words);
    constexpr float no_mean[vector] = {};
    float largest[passes];
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      largest[i] = magnitude_of<false>(words[i], no_mean);
    }
    float of_group = scatter<16, second, third>(largest, lane, larger_or_nan{});
#pragma unroll
    for (int distance = third / 2; distance > 0; distance /= 2) {
      of_group = maximum_or_nan(of_group, __shfl_xor_sync(0xffffffffU, of_group, distance));
    }
    const code_scale fitted = scale_of<Largest>(of_group);
    const std::int64_t first = (std::int64_t{work.head} * schedule.query_tiles + work.tile) * tile;
    if (lane % third == 0) {
      query_scales[first / 2 + number_of<16, second, third>(lane) * 8 + at.row % 8] = fitted.scale * factor;
    }
    std::int8_t* const to = query_codes + first * Channels + at.channel;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      const int source =
          (i & 4 ? 16 : 0) + (i & 2 ? second : 0) + (i & 1 ? third : 0) + (row_lanes == 8 ? lane & 8 : 0);
      const float reciprocal = __shfl_sync(0xffffffffU, fitted.reciprocal, source);
      *reinterpret_cast<uint2*>(to + (i * rows + at.row) * Channels) = encode<false>(words[i], no_mean, reciprocal);
    }
    if (mean_scores != nullptr) {
      write_mean_scores(group, work, words);
    }
  }

  /// softmax_scale * query . mean key.
  __device__ __forceinline__ void write_mean_scores(cuda_block<lanes> const& group, quantize_work work,
                                                    pair const (&words)[passes][4]) const {
    constexpr int first_bit = row_lanes / 2;
    const place at(group.lane);
    const std::int32_t key_head = work.head / schedule.group;
    if (schedule.has_key_mean) {
      await(group, key_head, 0);
    }
    float mean[vector];
    load_eight(key_mean + std::int64_t{key_head} * Channels + at.channel, mean);
    float products[passes];
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      products[i] = 0.0F;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 value = unpack_pair<T>(computed_again(words[i][j]));
        products[i] = __fmaf_rn(value.x, mean[2 * j], products[i]);
        products[i] = __fmaf_rn(value.y, mean[2 * j + 1], products[i]);
      }
    }
    float sum = scatter<first_bit, first_bit / 2, first_bit / 4>(products, group.lane, sum_of_two{});
#pragma unroll
    for (int distance = first_bit / 8; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffU, sum, distance);
    }
    const int token = number_of<first_bit, first_bit / 2, first_bit / 4>(group.lane) * rows + at.row;
    const std::int64_t query = std::int64_t{work.tile} * tile + token;
    if (query < queries.extents[2] && (row_lanes == 8 || group.lane % 2 == 0)) {
      mean_scores[work.head * queries.extents[2] + query] = softmax_scale * sum;
    }
  }

  __device__ __forceinline__ void encode_keys(cuda_block<lanes> const& group, quantize_work work,
                                              scratch_type& scratch) const {
    const place at(group.lane);
    const std::int32_t tokens = tokens_of(key_lengths, keys, work);
    pair words[passes][4];
    load<true>(tile_of(keys, work), keys.strides[2], at, tokens, words);
    float mean[vector] = {};
    if constexpr (Means.of_keys) {
      await(group, work.head, 0);
      load_eight(key_mean + std::int64_t{work.head} * Channels + at.channel, mean);
    }
    float largest = 0.0F;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      if (i * rows + at.row < tokens) {
        largest = maximum_or_nan(largest, magnitude_of<Means.of_keys>(words[i], mean));
      }
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      largest = maximum_or_nan(largest, __shfl_xor_sync(0xffffffffU, largest, distance));
    }
    const int warp = group.lane / 32;
    if constexpr (warps == 8) {
      if (group.lane % 32 == 0) {
        scratch.magnitude[warp] = largest;
      }
      group.sync();
      largest = maximum_or_nan(largest, scratch.magnitude[warp ^ 1]);
    }
    const code_scale fitted = scale_of<Largest>(largest);
    const std::int64_t first = (std::int64_t{work.head} * schedule.key_tiles + work.tile) * tile;
    if (group.lane % (lanes / 4) == 0) {
      key_scales[first / 32 + group.lane / (lanes / 4)] = fitted.scale;
    }
    std::int8_t* const to = key_codes + first * Channels + at.channel;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      const float reciprocal = i * rows + at.row < tokens ? fitted.reciprocal : 0.0F;
      *reinterpret_cast<uint2*>(to + (i * rows + at.row) * Channels) =
          encode<Means.of_keys>(words[i], mean, reciprocal);
    }
  }

  // Codes of values: a lane has those of four tokens that lie next to each other in a channel, twice, of 8 channels.

  __device__ __forceinline__ void encode_values(cuda_block<lanes> const& group, quantize_work work,
                                                scratch_type& scratch) const {
    constexpr int halves = Channels / 64;
    const int lane = group.lane % 32;
    const int warp = group.lane / 32;
    const int quad = lane / 8;
    const int chunk = warp % halves * 8 + lane % 8;
    const int first_pass = warp / halves * 2;
    const std::int32_t tokens = tokens_of(key_lengths, values, work);
    pair words[2][4][4];
    load_quads(tile_of(values, work), values.strides[2], first_pass * rows + 2 * quad, chunk * vector, tokens, words);
    await(group, work.head, 1);
    float reciprocals[vector];
    float mean[vector] = {};
    find_reciprocals(value_scales + std::int64_t{work.head} * Channels + warp % halves * 64, lane, reciprocals);
    if constexpr (Means.of_values) {
      load_eight(value_mean + std::int64_t{work.head} * Channels + chunk * vector, mean);
    }
    bool has_zero = false;
#pragma unroll
    for (int j = 0; j < vector; ++j) {
      has_zero = has_zero || reciprocals[j] == 0.0F;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < vector; ++j) {
        float four[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float2 both = unpack_pair<T>(words[i][k][j / 2]);
          float value = j % 2 == 0 ? both.x : both.y;
          if constexpr (Means.of_values) {
            const int token = (first_pass + i) * rows + 2 * quad + row_of(k);
            value = token < tokens ? value - mean[j] : 0.0F;
          }
          four[k] = __fmul_rn(value, reciprocals[j]);
        }
        std::uint32_t codes = pack_four_e4m3(four[0], four[1], four[2], four[3]);
        if (has_zero) {
          codes = reciprocals[j] == 0.0F ? 0 : codes;
        }
        const int channel = chunk * vector + j;
        reinterpret_cast<std::uint32_t*>(&scratch.codes[channel][(first_pass + i) ^ (chunk % 8)])[quad] = codes;
      }
    }
    group.sync();
    write_values(group, work, scratch);
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

  __device__ __forceinline__ void write_values(cuda_block<lanes> const& group, quantize_work work,
                                               scratch_type const& scratch) const {
    constexpr int pieces = tile / 16;
    const std::int64_t pitch = std::int64_t{schedule.key_tiles} * tile;
    float8_e4m3* const to = value_codes + std::int64_t{work.head} * Channels * pitch + std::int64_t{work.tile} * tile;
#pragma unroll
    for (int i = 0; i < Channels * pieces / lanes; ++i) {
      const int channel = (i * lanes + group.lane) / pieces;
      const int piece = group.lane % pieces;
      *reinterpret_cast<uint4*>(to + channel * pitch + piece * 16) =
          scratch.codes[channel][piece ^ (channel / vector % 8)];
    }
  }
};

}  // namespace v0
}  // namespace tessera
