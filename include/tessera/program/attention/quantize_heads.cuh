// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `encode_tiles`: makes codes of queries, keys and values, by the means and scales of finish_tiles, and where queries
/// are smoothed the means of each 128 of them. They have the bits of encode_tokens and encode_values. A thread block
/// takes a tile of 128 tokens. Tiles of keys and values come first, in the reverse of the order in which
/// summarize_tiles read them, because the last ones may still be in L2.
///
/// Instructions for an element: about 6 for the code of a key or a query (widen, subtract the mean, take into the
/// largest, multiply, round by adding 1.5 2^23, which leaves the code in the lower byte, and most of one to pack; e4m3:
/// half a conversion for the last two), and 3 for the code of a value. If a value's scale is that of a sample, one more
/// instruction checks whether the value is in the scale's range; encode_again follows for values that are not.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention/channel_statistics.cuh>
#include <tessera/program/attention/detail/code_form.cuh>
#include <tessera/program/attention/detail/head_lanes.cuh>
#include <tessera/program/attention/detail/mean_operands.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/sampled_range.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/token_sample.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// Makes codes of tiles of queries, keys and values. T, Channels: see summarize_tiles. Form: that of codes of queries
/// and keys.
template <class T, int Channels, code_form Form, quantized_means Means>
struct encode_tiles : head_lanes<T, Channels> {
  using base = head_lanes<T, Channels>;
  using base::lanes, base::passes, base::row_lanes, base::rows, base::tile, base::vector;
  static constexpr bool is_persistent = true;
  static constexpr bool waits_for_stream = true;
  static constexpr int blocks_per_multiprocessor = 1024 / lanes;

  /// What means of queries are made of.
  struct query_scratch {
    alignas(16) float sums[rows][Channels];  ///< sums of queries, one for each row of lanes; then, in row 1, the mean
    float products[lanes / 32];              ///< each warp's part of the product of the mean with the mean key
  };
  union scratch_type {
    float magnitude[rows];             ///< largest magnitudes of rows of lanes
    query_scratch of_queries;          ///< for means of queries
    uint4 codes[Channels][tile / 16];  ///< transposed codes of values
  };

  tiled_heads<T> queries;          ///< null: no codes of queries
  tiled_heads<T> keys;             ///< null: no codes of keys
  tiled_heads<T> values;           ///< null: no codes of values
  std::int32_t query_heads;        ///< query heads of all sequences
  std::int32_t key_heads;          ///< key heads of all sequences
  fast_divisor query_tiles;        ///< tiles of a query head
  fast_divisor key_tiles;          ///< tiles of a key head
  fast_divisor group_heads;        ///< query heads of a key head
  std::int32_t channels;           ///< channels of a head
  bool is_after_summaries;         ///< whether summarize_tiles ran in the same call: then inputs are complete already
  float factor;                    ///< what scales of queries are multiplied by after codes are made
  float softmax_scale;             ///< the scale of mean_scores
  std::int8_t* query_codes;        ///< memory of quantized_queries::codes
  float* query_scales;             ///< memory of quantized_queries::scales
  float* mean_scores;              ///< batch x query heads x queries, or null
  std::int32_t query_blocks;       ///< means of a query head
  float* query_means;              ///< batch x query heads x query_blocks x channels, if Means.of_queries
  mean_operands<T> mean_queries;   ///< the same means for correct_tiles, if Means.of_queries
  std::int8_t* key_codes;          ///< memory of quantized_keys::codes
  float* key_scales;               ///< memory of quantized_keys::scales
  float const* key_mean;           ///< means of keys, if Means.of_keys
  float8_e4m3* value_codes;        ///< memory of quantized_value_heads::codes
  float const* value_mean;         ///< means of values, if Means.of_values
  float const* value_reciprocals;  ///< reciprocals of values' scales: batch x key heads x channels
  token_sample value_sample;       ///< the sample that those scales are fitted to
  /// If Means.samples_values: bits of the largest values without room in their scales, batch x key heads x channels;
  /// then for each head whether it has any.
  std::uint32_t* beyond;

  /// How many kinds of tokens are wanted of keys and values: 0, 1 or 2.
  [[nodiscard]] TESSERA_FN std::int32_t kinds() const {
    return (keys.heads.data != nullptr ? 1 : 0) + (values.heads.data != nullptr ? 1 : 0);
  }
  /// How many tiles of keys and values are coded.
  [[nodiscard]] TESSERA_FN std::int32_t key_count() const { return key_heads * kinds() * key_tiles.value(); }
  [[nodiscard]] TESSERA_FN std::int32_t count() const {
    return key_count() + (queries.heads.data != nullptr ? query_heads * query_tiles.value() : 0);
  }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    let_next_kernel_start();
    if (!is_after_summaries) {
      wait_for_stream();  // after summaries tiles are loaded while finish_tiles still runs
    }
    auto index = static_cast<std::int32_t>(which);
    std::int32_t const keys_and_values = key_count();
    if (index >= keys_and_values) {
      index -= keys_and_values;
      std::int32_t const head = index / query_tiles;
      return encode_queries(group, head, index - head * query_tiles.value(), scratch);
    }
    index = keys_and_values - 1 - index;
    std::int32_t const list = index / key_tiles;
    std::int32_t const at = index - list * key_tiles.value();
    bool const has_both = kinds() == 2;
    std::int32_t const head = has_both ? list >> 1 : list;
    if (has_both ? (list & 1) == 0 : keys.heads.data != nullptr) {
      encode_keys(group, head, at, scratch);
    } else {
      encode_values<Means.samples_values>(group, head, at, scratch);
    }
  }

  /// Makes the codes of values of a head again that had values beyond its scales, by scales that have room for all.
  __device__ __forceinline__ void encode_values_again(cuda_block<lanes> const& group, std::int32_t head,
                                                      std::int32_t at, scratch_type& scratch) const {
    encode_values<false>(group, head, at, scratch);
  }

 private:
  using pair = typename base::pair;
  using larger = typename base::larger_or_nan;
  using code = code_of_form<Form>;

  /// The tokens of a lane: row + 8 i. As keys they share a scale, as queries each two of them do.
  struct coordinates {
    int row;
    int channel;
    TESSERA_FN explicit coordinates(int lane)
        : row(lane / row_lanes % 8 + lane / row_lanes / 8 * 64), channel(lane % row_lanes * vector) {}
  };
  static constexpr int step = 8;

  __device__ __forceinline__ void load_words(tiled_heads<T> const& of, std::int32_t head, std::int32_t at,
                                             coordinates where, std::int32_t tokens, pair (&words)[passes][4]) const {
    base::template load<step>(of.first(head, at) + where.channel, of.heads.strides[2], where.row,
                              where.channel < channels ? of.in_memory(head, at, tokens) : 0, words);
  }

  // Codes of queries.

  __device__ __forceinline__ void encode_queries(cuda_block<lanes> const& group, std::int32_t head, std::int32_t at,
                                                 scratch_type& scratch) const {
    constexpr int pairs = passes / 2;
    constexpr int high = row_lanes / 2;
    constexpr int low = row_lanes / 4;
    coordinates const where(group.lane);
    int const lane = group.lane % 32;
    std::int32_t const tokens = queries.tokens(head, at);
    std::int32_t const left = tokens - where.row;
    pair words[passes][4];
    load_words(queries, head, at, where, tokens, words);
    wait_for_stream();
    if (mean_scores != nullptr) {  // first: after the codes it would keep their inputs in registers
      write_mean_scores(where, lane, head, at, words);
    }
    float mean[vector] = {};
    if constexpr (Means.of_queries) {
      find_query_means(group, where, head, at, tokens, words, mean, scratch);
    }
    float largest[pairs];
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      largest[i] = maximum_or_nan(magnitude_of_query(words[2 * i], mean, 2 * i * step < left),
                                  magnitude_of_query(words[2 * i + 1], mean, (2 * i + 1) * step < left));
    }
    float of_pair = base::template scatter<high, low>(largest, lane, larger{});
#pragma unroll
    for (int distance = low / 2; distance > 0; distance /= 2) {
      of_pair = maximum_or_nan(of_pair, shuffle_xor(of_pair, distance));
    }
    code_scale const fitted = base::scale_of(of_pair, static_cast<float>(Form.highest));
    float const factor_of_pair = Form.factor_of(fitted.reciprocal);
    std::int64_t const first = (std::int64_t{head} * query_tiles.value() + at) * tile;
    if (lane % low == 0) {
      int const of_tile = where.row / 64 * pairs + lane % row_lanes / low;
      query_scales[first / 2 + of_tile * 8 + where.row % 8] = fitted.scale * factor;
    }
    std::int8_t* const to = query_codes + ((first + where.row) * channels + where.channel) / Form.in_byte;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      float const reciprocal = shuffle(factor_of_pair, lane / row_lanes * row_lanes + i / 2 * low);
      bool const is_zero = Means.of_queries && i * step >= left;
      uint2 const codes = base::template encode<code>(words[i], mean, is_zero ? 0.0F : reciprocal);
      if (where.channel < channels) {
        store_codes<Form>(to + i * step * channels / Form.in_byte, codes);
      }
    }
  }

  /// The largest magnitude of a lane's part of a query. Those that do not exist are zeros, minus no mean.
  __device__ __forceinline__ static float magnitude_of_query(pair const (&words)[4], float const (&mean)[vector],
                                                             bool exists) {
    return exists || !Means.of_queries ? base::template magnitude_less<Means.of_queries>(words, mean) : 0.0F;
  }

  /// Makes the mean of the tile's queries, which are a block of a block_mean, rounded to T, and gives a lane that of
  /// its own channels.
  __device__ __forceinline__ void find_query_means(cuda_block<lanes> const& group, coordinates where, std::int32_t head,
                                                   std::int32_t at, std::int32_t tokens, pair const (&words)[passes][4],
                                                   float (&mean)[vector], scratch_type& scratch) const {
    static_assert(tile == block_mean::tokens && tile == 2 * block_mean::part);
    constexpr int part_rows = rows / 2;
    auto& sums = scratch.of_queries.sums;
    base::add_tokens_of_parts(words, mean);
    base::store_eight(&sums[group.lane / row_lanes][where.channel], mean);
    group.sync();
    int const part = group.lane / Channels;
    int const channel = group.lane % Channels;
    float found[part_rows];
#pragma unroll
    for (int i = 0; i < part_rows; ++i) {
      found[i] = sums[part * part_rows + i][channel];
    }
    sums[part * part_rows][channel] = detail::add_halves(found);  // where only this lane has read
    group.sync();
    float const sum = sums[0][channel] + sums[part_rows][channel];
    float const of_block = tokens > 0 ? sum / static_cast<float>(tokens) : 0.0F;
    float const rounded = unpack_pair<T>(pack_pair<T>(is_finite(of_block) ? of_block : 0.0F, 0.0F)).x;
    bool const exists = part == 0 && channel < channels;
    std::int64_t const row = std::int64_t{head} * query_blocks + at;
    if (part == 0) {
      sums[1][channel] = rounded;
      mean_queries.put(row, channels, channel, store<T>(exists ? rounded : 0.0F));
    }
    if (exists) {
      query_means[row * channels + channel] = rounded;
    }
    add_products(group, head, exists ? channel : -1, rounded, scratch);
    group.sync();
    if (group.lane == 0) {
      *mean_queries.product(row, channels) = product_of(scratch);
    }
    auto const* const from = reinterpret_cast<float4 const*>(&sums[1][where.channel]);
    float4 const low = from[0];
    float4 const high = from[1];
    float const all[vector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < vector; ++i) {
      mean[i] = all[i];
    }
  }

  /// Leaves each warp's part of the product of the mean with the mean key. `channel`: negative if it does not exist.
  __device__ __forceinline__ void add_products(cuda_block<lanes> const& group, std::int32_t head, int channel,
                                               float mean, scratch_type& scratch) const {
    float product = 0.0F;
    if constexpr (Means.of_keys) {
      std::int64_t const of_head = std::int64_t{head / group_heads} * channels;
      product = channel < 0 ? 0.0F : mean * load_from_l2(key_mean + of_head + channel);
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) {
        product += shuffle_xor(product, distance);
      }
    }
    if (group.lane % 32 == 0) {
      scratch.of_queries.products[group.lane / 32] = product;
    }
  }
  /// The product of the mean with the mean key, in units of scores.
  [[nodiscard]] __device__ __forceinline__ float product_of(scratch_type const& scratch) const {
    constexpr int warps = Channels / 32;  // of the lanes that have a channel each
    float product = 0.0F;
#pragma unroll
    for (int i = 0; i < warps; ++i) {
      product += scratch.of_queries.products[i];
    }
    return factor * product;
  }

  /// Writes softmax_scale * query . mean key for the queries of a tile.
  __device__ __forceinline__ void write_mean_scores(coordinates where, int lane, std::int32_t head, std::int32_t at,
                                                    pair const (&words)[passes][4]) const {
    constexpr int bit = row_lanes / 2;
    std::int64_t const key_head = head / group_heads;
    float mean[vector];
    base::load_eight(key_mean + key_head * channels + where.channel, where.channel < channels, mean);
    float products[passes];
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      products[i] = 0.0F;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float2 const value = unpack_pair<T>(recompute(words[i][j]));
        products[i] = __fmaf_rn(value.x, mean[2 * j], products[i]);
        products[i] = __fmaf_rn(value.y, mean[2 * j + 1], products[i]);
      }
    }
    float sum = base::template scatter<bit, bit / 2, bit / 4>(products, lane, typename base::sum_of_two{});
#pragma unroll
    for (int distance = bit / 8; distance > 0; distance /= 2) {
      sum += shuffle_xor(sum, distance);
    }
    constexpr int share = bit / 4;  // lanes that have the same sum
    std::int64_t const query = std::int64_t{at} * tile + where.row + lane % row_lanes / share * step;
    if (query < queries.heads.extents[2] && lane % share == 0) {
      mean_scores[head * queries.heads.extents[2] + query] = softmax_scale * sum;
    }
  }

  // Codes of keys.

  __device__ __forceinline__ void encode_keys(cuda_block<lanes> const& group, std::int32_t head, std::int32_t at,
                                              scratch_type& scratch) const {
    coordinates const where(group.lane);
    std::int32_t const tokens = keys.tokens(head, at);
    std::int32_t const left = tokens - where.row;
    pair words[passes][4];
    load_words(keys, head, at, where, tokens, words);
    wait_for_stream();
    float mean[vector] = {};
    if constexpr (Means.of_keys) {
      base::load_eight(key_mean + std::int64_t{head} * channels + where.channel, where.channel < channels, mean);
    }
    float largest = 0.0F;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      if (i * step < left) {
        largest = maximum_or_nan(largest, base::template magnitude_less<Means.of_keys>(words[i], mean));
      }
    }
    code_scale const fitted =
        base::scale_of(join_scale_group(group, where, largest, scratch), static_cast<float>(Form.highest));
    std::int64_t const first = (std::int64_t{head} * key_tiles.value() + at) * tile;
    if (where.row < 8 && where.row % 2 == 0 && where.channel == 0) {
      key_scales[first / 32 + where.row / 2] = fitted.scale;
    }
    if (where.channel >= channels) {
      return;
    }
    float const factor_of_group = Form.factor_of(fitted.reciprocal);
    std::int8_t* to = key_codes + ((first + where.row) * channels + where.channel) / Form.in_byte;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      uint2 const codes =
          base::template encode_less<code, Means.of_keys>(words[i], mean, i * step < left ? factor_of_group : 0.0F);
      store_codes<Form>(to, codes);
      to += step * channels / Form.in_byte;
    }
  }
  /// The largest magnitude of the tokens n with the same n % 8 / 2, which two neighbouring rows of lanes have, in both
  /// halves of the tile.
  __device__ __forceinline__ static float join_scale_group(cuda_block<lanes> const& group, coordinates where,
                                                           float largest, scratch_type& scratch) {
    constexpr int together = row_lanes == 32 ? 32 : 2 * row_lanes;
    constexpr int members = 4 * row_lanes / together;
#pragma unroll
    for (int distance = together / 2; distance > 0; distance /= 2) {
      largest = maximum_or_nan(largest, shuffle_xor(largest, distance));
    }
    float* const of_group = scratch.magnitude + where.row % 8 / 2 * members;
    if (group.lane % together == 0) {
      of_group[where.row / 64 * (members / 2) + (members == 4 ? where.row % 2 : 0)] = largest;
    }
    group.sync();
#pragma unroll
    for (int i = 0; i < members; ++i) {
      largest = maximum_or_nan(largest, of_group[i]);
    }
    return largest;
  }

  // Codes of values: for each of 8 channels a lane makes, twice, the codes of four tokens that lie next to each other.

  /// The k-th of four such tokens is token 2 q + row_of(k) of its 16.
  TESSERA_FN static constexpr int row_of(int k) {
    return k / 2 * 8 + k % 2;
  }
  static_assert(value_slot(2) == 4 && value_slot(3) == 5 && value_slot(10) == 6 && value_slot(11) == 7,
                "tessera: tokens 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 are neighbours among codes of values");

  __device__ __forceinline__ void load_quads(std::int32_t head, std::int32_t at, int row, int channel,
                                             std::int32_t tokens, pair (&words)[2][4][4]) const {
    std::int64_t const stride = values.heads.strides[2];
    std::int32_t const end = channel < channels ? values.in_memory(head, at, tokens) : 0;
    T const* const from = values.first(head, at) + channel + row * stride;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        int const beyond = i * rows + row_of(k);
        base::template take<false>(from + beyond * stride, row + beyond < end, words[i][k]);
      }
    }
  }

  template <bool NotesBeyond>
  __device__ __forceinline__ void encode_values(cuda_block<lanes> const& group, std::int32_t head, std::int32_t at,
                                                scratch_type& scratch) const {
    constexpr int halves = Channels / 64;
    int const warp = group.lane / 32;
    int const quad = group.lane % 32 / 8;
    int const turn = group.lane % 8;
    int const channel = (warp % halves * 8 + turn) * vector;
    int const pass = warp / halves * 2;
    int const row = pass * rows + 2 * quad;
    std::int32_t const tokens = values.tokens(head, at);
    pair words[2][4][4];
    load_quads(head, at, row, channel, tokens, words);
    wait_for_stream();
    std::int64_t const of_head = std::int64_t{head} * channels + channel;
    float reciprocals[vector];
    base::load_eight(value_reciprocals + of_head, channel < channels, reciprocals);
    float mean[vector] = {};
    if constexpr (Means.of_values) {
      base::load_eight(value_mean + of_head, channel < channels, mean);
    }
    std::uint32_t is_largest = 0;
    bool has_zero = false;
#pragma unroll
    for (int j = 0; j < vector; ++j) {
      has_zero = has_zero || reciprocals[j] == 0.0F;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float four[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float2 const both = unpack_pair<T>(words[i][k][j / 2]);
          float value = j % 2 == 0 ? both.x : both.y;
          if constexpr (Means.of_values) {
            value = row + i * rows + row_of(k) < tokens ? value - mean[j] : 0.0F;
          }
          four[k] = __fmul_rn(value, reciprocals[j]);
        }
        std::uint32_t const codes = pack_four_e4m3(four[0], four[1], four[2], four[3]);
        is_largest |= (codes & 0x7f7f7f7fU) + 0x02020202U;  // the highest bits of bytes that are 0x7e or NaN
        reinterpret_cast<std::uint32_t*>(&scratch.codes[channel + j][(pass + i) ^ turn])[quad] =
            reciprocals[j] == 0.0F ? 0 : codes;
      }
    }
    if constexpr (NotesBeyond) {
      bool const may_be = (is_largest & 0x80808080U) != 0 || has_zero;
      if (may_be && channel < channels && value_sample.step(values.length(head)) > 1) {
        note_beyond(head, at, row, channel, tokens, reciprocals, mean);
      }
    }
    group.sync();
    write_values(group, head, at, scratch);
  }

  /// Notes the largest values that have no room. It reads the values again, because there hardly ever are any.
  __device__ __forceinline__ void note_beyond(std::int32_t head, std::int32_t at, int row, int channel,
                                              std::int32_t tokens, float const (&reciprocals)[vector],
                                              float const (&mean)[vector]) const {
    pair words[2][4][4];
    load_quads(head, at, row, channel, tokens, words);
#pragma unroll
    for (int j = 0; j < vector; ++j) {
      std::uint32_t largest = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float2 const both = unpack_pair<T>(words[i][k][j / 2]);
          float value = j % 2 == 0 ? both.x : both.y;
          if constexpr (Means.of_values) {
            value = row + i * rows + row_of(k) < tokens ? value - mean[j] : 0.0F;
          }
          largest = max(largest, __float_as_uint(fabsf(value)));
        }
      }
      if (!sampled_range<float8_quantizer<float8_e4m3>>::has_room(__uint_as_float(largest), reciprocals[j])) {
        atomicMax(beyond + std::int64_t{head} * channels + channel + j, largest);
        beyond[std::int64_t{key_heads} * channels + head] = 1;
      }
    }
  }

  __device__ __forceinline__ void write_values(cuda_block<lanes> const& group, std::int32_t head, std::int32_t at,
                                               scratch_type const& scratch) const {
    constexpr int pieces = tile / 16;
    constexpr int together = lanes / pieces;
    int const piece = group.lane % pieces;
    int const first = group.lane / pieces;
    float8_e4m3* const to =
        value_codes + (std::int64_t{head} * key_tiles.value() + at) * tile * channels + group.lane * 16;
#pragma unroll
    for (int i = 0; i < Channels / together; ++i) {
      int const channel = i * together + first;
      if (channel < channels) {
        *reinterpret_cast<uint4*>(to + i * lanes * 16) = scratch.codes[channel][piece ^ (channel / vector % 8)];
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
