// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `summarize_tiles`: computes the sums of keys, for robust means, and the ranges of values, for each tile of 128
/// tokens of a sequence or of a sample. They have the bits of summarize_heads, and finish_tiles merges them. A thread
/// block takes a tile.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/program/attention/channel_statistics.hpp>
#include <tessera/program/attention/detail/head_lanes.cuh>
#include <tessera/quantize/token_sample.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>

namespace tessera {
inline namespace v0 {

/// Which means are subtracted before coding, and what is sampled.
struct quantized_means {
  bool of_keys;         ///< whether the mean of keys is subtracted
  bool of_values;       ///< whether the mean of values is subtracted
  bool samples_values;  ///< whether scales of values, and their means, are those of a sample
  bool of_queries;      ///< whether the mean of each block of queries is subtracted
};

/// Memory for summaries, each batch x key heads x tiles x channels. Where no mean of values is wanted, `highest` has
/// the largest magnitudes, and `lowest` and `sum` are not written.
struct tile_summaries {
  float* key_sum;  ///< sums of keys, for a mean of middles
  float* highest;  ///< highest values, or largest magnitudes of values
  float* lowest;   ///< lowest values
  float* sum;      ///< sums of values
};

/// Summarizes tiles of keys and values. T: bfloat16 or float16; rows of inputs begin at multiples of 16 bytes and their
/// channels lie next to each other. Channels: 64, 128 or 256, the next that has room for the head's channels.
template <class T, int Channels, quantized_means Means>
struct summarize_tiles : head_lanes<T, Channels> {
  using base = head_lanes<T, Channels>;
  using base::lanes, base::passes, base::row_lanes, base::rows, base::vector;
  static constexpr bool is_persistent = true;
  static constexpr bool waits_for_stream = true;
  static constexpr int blocks_per_multiprocessor = (Means.of_values ? 512 : 1024) / lanes;

  struct scratch_type {
    /// One number for each row of lanes and each channel.
    alignas(16) float numbers[rows][Channels];
  };

  tiled_heads<T> keys;    ///< null: no sums of keys
  tiled_heads<T> values;  ///< null: no ranges of values
  tile_summaries summaries;
  std::int32_t heads;         ///< key heads of all sequences
  token_sample key_sample;    ///< the sample of keys that are added up
  token_sample value_sample;  ///< the sample of values that are taken into ranges
  fast_divisor tiles;         ///< tiles of a head, or of its samples
  std::int32_t channels;      ///< channels of a head

  /// How many kinds of tokens are wanted: keys, values or both.
  [[nodiscard]] TESSERA_FN std::int32_t kinds() const {
    return (keys.heads.data != nullptr ? 1 : 0) + (values.heads.data != nullptr ? 1 : 0);
  }
  [[nodiscard]] TESSERA_FN std::int32_t count() const { return heads * kinds() * tiles.value(); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    wait_for_stream();
    let_next_kernel_start();  // only now: the next kernel may read inputs before it waits
    auto const index = static_cast<std::int32_t>(which);
    std::int32_t const list = index / tiles;
    std::int32_t const tile = index - list * tiles.value();
    bool const has_both = kinds() == 2;
    std::int32_t const head = has_both ? list >> 1 : list;
    if (has_both ? (list & 1) == 0 : keys.heads.data != nullptr) {
      if constexpr (Means.of_keys) {
        summarize_keys(group, head, tile, scratch);
      }
    } else {
      summarize_values(group, head, tile, scratch);
    }
  }

 private:
  using pair = typename base::pair;

  /// Loads tokens row, row + 16 ... of a tile of a sample, and returns how many tokens the tile has. Lanes beyond the
  /// channels get zeros.
  template <bool IsOfMiddle>
  __device__ __forceinline__ std::int32_t fetch(tiled_heads<T> const& of, token_sample sample, std::int32_t head,
                                                std::int32_t at, int row, int channel, pair (&words)[passes][4]) const {
    std::int32_t const length = of.length(head);
    auto const step = static_cast<std::int32_t>(sample.step(length));
    std::int32_t const sampled = IsOfMiddle ? tokens_of_middle(length / step) : length / step;
    std::int32_t const in_tile = clamp(sampled - at * base::tile, 0, base::tile);
    std::int32_t const tokens = channel < channels ? in_tile : 0;
    if (step == 1) {  // all tokens are too many to be in L2 still when encode_tiles reads them
      base::template load<rows, true>(of.first(head, at) + channel, of.heads.strides[2], row,
                                      of.in_memory(head, at, tokens), words);
      return in_tile;
    }
    T const* const from = of.first(head, 0) + channel;
    std::int32_t const end = of.in_memory(head, 0, length);
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      std::int32_t const token = token_sample::token(at * base::tile + row + i * rows, step);
      bool const exists = row + i * rows < tokens && token < end;
      base::template take<false>(from + token * of.heads.strides[2], exists, words[i]);
    }
    return in_tile;
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t index_of(std::int32_t head, std::int32_t tile) const {
    return (std::int64_t{head} * tiles.value() + tile) * channels;
  }

  __device__ __forceinline__ void summarize_keys(cuda_block<lanes> const& group, std::int32_t head, std::int32_t tile,
                                                 scratch_type& scratch) const {
    int const row = group.lane / row_lanes;
    int const channel = group.lane % row_lanes * vector;
    pair words[passes][4];
    std::int32_t const tokens = fetch<true>(keys, key_sample, head, tile, row, channel, words);
    float sums[vector];
    base::add_tokens(words, sums);
    base::store_eight(&scratch.numbers[row][channel], sums);
    group.sync();
    add_middle_rows(group, scratch, tokens, summaries.key_sum + index_of(head, tile));
  }

  __device__ __forceinline__ void summarize_values(cuda_block<lanes> const& group, std::int32_t head, std::int32_t tile,
                                                   scratch_type& scratch) const {
    int const row = group.lane / row_lanes;
    int const channel = group.lane % row_lanes * vector;
    pair words[passes][4];
    std::int32_t const tokens = fetch<false>(values, value_sample, head, tile, row, channel, words);
    std::int64_t const to = index_of(head, tile);
    if constexpr (Means.of_values) {
      float lowest[vector];
      float highest[vector];
      base::find_range(words, row, tokens, lowest, highest);
      base::store_eight(&scratch.numbers[row][channel], highest);
      group.sync();
      join_rows(group, scratch, typename base::larger_or_nan{}, summaries.highest + to);
      group.sync();
      base::store_eight(&scratch.numbers[row][channel], lowest);
      group.sync();
      join_rows(group, scratch, typename base::smaller_or_nan{}, summaries.lowest + to);
      group.sync();
      base::add_tokens(words, highest);
      base::store_eight(&scratch.numbers[row][channel], highest);
      group.sync();
      add_rows(group, scratch, summaries.sum + to);
    } else {
      pair highest[4];
      base::find_magnitudes(words, highest);
      auto* const pairs = reinterpret_cast<pair*>(&scratch);
      reinterpret_cast<uint4*>(pairs)[group.lane] = {highest[0], highest[1], highest[2], highest[3]};
      group.sync();
      if (2 * group.lane < channels) {
        pair joined = pairs[group.lane];
#pragma unroll
        for (int i = 1; i < rows; ++i) {
          joined = larger_pair_or_nan<T>(joined, pairs[i * Channels / 2 + group.lane]);
        }
        reinterpret_cast<float2*>(summaries.highest + to)[group.lane] = unpack_pair<T>(joined);
      }
    }
  }

  __device__ __forceinline__ void add_rows(cuda_block<lanes> const& group, scratch_type const& scratch,
                                           float* to) const {
    if (group.lane < channels) {
      float found[rows];
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        found[i] = scratch.numbers[i][group.lane];
      }
      to[group.lane] = detail::add_halves(found);
    }
  }
  __device__ __forceinline__ void add_middle_rows(cuda_block<lanes> const& group, scratch_type const& scratch,
                                                  std::int32_t tokens, float* to) const {
    if (group.lane < channels) {
      float found[rows];
      if (tokens >= rows || tokens == 0) {
#pragma unroll
        for (int i = 0; i < rows; ++i) {
          found[i] = scratch.numbers[i][group.lane];
        }
      } else {
#pragma unroll
        for (int i = 0; i < rows; ++i) {
          found[i] = scratch.numbers[i % tokens][group.lane];
        }
      }
      to[group.lane] = detail::add_middle(found);
    }
  }
  template <class Combine>
  __device__ __forceinline__ void join_rows(cuda_block<lanes> const& group, scratch_type const& scratch,
                                            Combine combine, float* to) const {
    if (group.lane < channels) {
      float joined = scratch.numbers[0][group.lane];
#pragma unroll
      for (int i = 1; i < rows; ++i) {
        joined = combine(joined, scratch.numbers[i][group.lane]);
      }
      to[group.lane] = joined;
    }
  }
};

}  // namespace v0
}  // namespace tessera
