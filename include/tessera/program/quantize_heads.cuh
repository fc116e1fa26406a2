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
#include <tessera/program/quantize_lanes.cuh>
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
struct quantize_heads : quantize_lanes<T, Channels> {
  static constexpr bool is_persistent = true;
  static constexpr int blocks_per_multiprocessor = 768 / quantize_lanes<T, Channels>::lanes;
  using base = quantize_lanes<T, Channels>;
  using base::lanes, base::parts, base::passes, base::rows, base::tile, base::vector, base::warps;

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
  using base::add, base::add_tokens, base::add_values, base::channel_at, base::find_magnitudes, base::find_range,
      base::find_reciprocals, base::join_parts, base::join_tiles, base::leave, base::load_eight, base::load_quads,
      base::row_lanes, base::row_of, base::take_parts, base::tile_of, base::tokens_of, typename base::larger_or_nan,
      typename base::pair, typename base::place, typename base::rows_beyond, typename base::smaller_or_nan,
      typename base::sum_of_two;

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

  // Summaries.

  __device__ __forceinline__ void summarize_keys(cuda_block<lanes> const& group, quantize_work work,
                                                 scratch_type& scratch) const {
    const place at(group.lane);
    pair words[passes][4];
    base::template load<false>(tile_of(keys, work), keys.strides[2], at, tokens_of(key_lengths, keys, work), words);
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
    base::template load<false, rows_beyond::are_the_last>(tile_of(values, work), values.strides[2], at, tokens, words);
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
    join_tiles(group, planes.highest + first, schedule.key_tiles, larger_or_nan{}, scratch.sums[1]);
    if constexpr (Means.of_values) {
      join_tiles(group, planes.lowest + first, schedule.key_tiles, smaller_or_nan{}, scratch.sums[0]);
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
      value_scales[to] = base::template scale_of<448>(magnitude).scale;  // the largest e4m3
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

  // Codes.

  __device__ __forceinline__ void encode_queries(cuda_block<lanes> const& group, quantize_work work) const {
    constexpr int second = row_lanes == 16 ? 8 : 4;
    constexpr int third = second / 2;
    const place at(group.lane);
    const int lane = group.lane % 32;
    pair words[passes][4];
    const std::int32_t tokens = tokens_of(query_lengths, queries, work);
    base::template load<true>(tile_of(queries, work), queries.strides[2], at, tokens, words);
    constexpr float no_mean[vector] = {};
    float largest[passes];
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      largest[i] = base::template magnitude_of<false>(words[i], no_mean);
    }
    float of_group = base::template scatter<16, second, third>(largest, lane, larger_or_nan{});
#pragma unroll
    for (int distance = third / 2; distance > 0; distance /= 2) {
      of_group = maximum_or_nan(of_group, __shfl_xor_sync(0xffffffffU, of_group, distance));
    }
    const code_scale fitted = base::template scale_of<Largest>(of_group);
    const std::int64_t first = (std::int64_t{work.head} * schedule.query_tiles + work.tile) * tile;
    if (lane % third == 0) {
      query_scales[first / 2 + base::template number_of<16, second, third>(lane) * 8 + at.row % 8] =
          fitted.scale * factor;
    }
    std::int8_t* const to = query_codes + first * Channels + at.channel;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      const int source =
          (i & 4 ? 16 : 0) + (i & 2 ? second : 0) + (i & 1 ? third : 0) + (row_lanes == 8 ? lane & 8 : 0);
      const float reciprocal = __shfl_sync(0xffffffffU, fitted.reciprocal, source);
      *reinterpret_cast<uint2*>(to + (i * rows + at.row) * Channels) =
          base::template encode<false>(words[i], no_mean, reciprocal);
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
    float sum = base::template scatter<first_bit, first_bit / 2, first_bit / 4>(products, group.lane, sum_of_two{});
#pragma unroll
    for (int distance = first_bit / 8; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffU, sum, distance);
    }
    const int token = base::template number_of<first_bit, first_bit / 2, first_bit / 4>(group.lane) * rows + at.row;
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
    base::template load<true>(tile_of(keys, work), keys.strides[2], at, tokens, words);
    float mean[vector] = {};
    if constexpr (Means.of_keys) {
      await(group, work.head, 0);
      load_eight(key_mean + std::int64_t{work.head} * Channels + at.channel, mean);
    }
    float largest = 0.0F;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      if (i * rows + at.row < tokens) {
        largest = maximum_or_nan(largest, base::template magnitude_of<Means.of_keys>(words[i], mean));
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
    const code_scale fitted = base::template scale_of<Largest>(largest);
    const std::int64_t first = (std::int64_t{work.head} * schedule.key_tiles + work.tile) * tile;
    if (group.lane % (lanes / 4) == 0) {
      key_scales[first / 32 + group.lane / (lanes / 4)] = fitted.scale;
    }
    std::int8_t* const to = key_codes + first * Channels + at.channel;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      const float reciprocal = i * rows + at.row < tokens ? fitted.reciprocal : 0.0F;
      *reinterpret_cast<uint2*>(to + (i * rows + at.row) * Channels) =
          base::template encode<Means.of_keys>(words[i], mean, reciprocal);
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

  __device__ __forceinline__ void write_values(cuda_block<lanes> const& group, quantize_work work,
                                               scratch_type const& scratch) const {
    constexpr int pieces = tile / 16;
    float8_e4m3* const to =
        value_codes + (std::int64_t{work.head} * schedule.key_tiles + work.tile) * (Channels * tile);
#pragma unroll
    for (int i = 0; i < Channels * pieces / lanes; ++i) {
      const int channel = (i * lanes + group.lane) / pieces;
      const int piece = group.lane % pieces;
      *reinterpret_cast<uint4*>(to + channel * tile + piece * 16) =
          scratch.codes[channel][piece ^ (channel / vector % 8)];
    }
  }
};

}  // namespace v0
}  // namespace tessera
