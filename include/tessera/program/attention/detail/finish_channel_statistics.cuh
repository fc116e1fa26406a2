// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `finish_tiles`: makes the means of keys and values and the scales of values from the summaries of summarize_tiles,
/// with the bits of finish_summaries. A thread block takes 32 channels of a head; each of its lanes takes 4 channels of
/// every 32nd tile.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention/channel_statistics.cuh>
#include <tessera/program/attention/channel_statistics.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/sampled_range.hpp>
#include <tessera/quantize/token_sample.hpp>
#include <tessera/reduce/absolute_maximum_or_nan.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>

namespace tessera {
inline namespace v0 {

template <class T, quantized_means Means>
struct finish_tiles {
  static constexpr bool is_persistent = true;
  static constexpr int lanes = 256;
  static constexpr int blocks_per_multiprocessor = 6;
  static constexpr int parts = finish_summaries<>::parts;  ///< sums over tiles
  static constexpr int piece = 32;                         ///< channels of a block
  static constexpr int ahead = 4;                          ///< tiles of a lane that are being loaded at a time
  static constexpr float highest = 448;                    ///< the largest e4m3

  struct scratch_type {
    /// One number for each sum and each channel.
    alignas(16) float numbers[parts][piece];
  };

  tiled_heads<T> keys;    ///< summarize_tiles::keys
  tiled_heads<T> values;  ///< summarize_tiles::values
  tile_summaries summaries;
  token_sample key_sample;    ///< summarize_tiles::key_sample
  token_sample value_sample;  ///< summarize_tiles::value_sample
  float room;                 ///< room of the values' sampled_range
  std::int32_t heads;         ///< key heads of all sequences
  std::int32_t tiles;         ///< tiles of a head, or of its samples
  std::int32_t channels;      ///< channels of a head
  fast_divisor pieces;        ///< blocks that share the channels of a head
  float* key_mean;            ///< batch x key heads x channels
  float* value_mean;          ///< batch x key heads x channels
  float* value_scales;        ///< batch x key heads x channels
  float* value_reciprocals;   ///< batch x key heads x channels
  std::uint32_t* beyond;      ///< encode_tiles::beyond, which is set to 0; if Means.samples_values

  [[nodiscard]] TESSERA_FN std::int32_t count() const {
    return heads * pieces.value() * ((keys.heads.data != nullptr ? 1 : 0) + (values.heads.data != nullptr ? 1 : 0));
  }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    auto const index = static_cast<std::int32_t>(which);
    std::int32_t const list = index / pieces;
    std::int32_t const channel = (index - list * pieces.value()) * piece;
    bool const has_both = keys.heads.data != nullptr && values.heads.data != nullptr;
    std::int32_t const head = has_both ? list >> 1 : list;
    if (has_both ? (list & 1) == 0 : keys.heads.data != nullptr) {
      if constexpr (Means.of_keys) {
        finish_keys(group, head, channel, scratch);
      }
    } else {
      finish_values(group, head, channel, scratch);
    }
  }

 private:
  __device__ __forceinline__ void finish_keys(cuda_block<lanes> const& group, std::int32_t head, std::int32_t first,
                                              scratch_type& scratch) const {
    gather(group, summaries.key_sum, head, first, 0.0F, sum_of_two{}, scratch);
    std::int32_t const channel = first + group.lane;
    if (group.lane < piece && channel < channels) {
      key_mean[std::int64_t{head} * channels + channel] =
          mean_of(add(group.lane, scratch), weight_of_middle(key_sample.count(keys.length(head))));
    }
  }

  __device__ __forceinline__ void finish_values(cuda_block<lanes> const& group, std::int32_t head, std::int32_t first,
                                                scratch_type& scratch) const {
    bool const is_writer = group.lane < piece && first + group.lane < channels;
    std::int64_t const to = std::int64_t{head} * channels + first + group.lane;
    gather(group, summaries.highest, head, first, Means.of_values ? -infinity : 0.0F, larger{}, scratch);
    float magnitude = is_writer ? join(group.lane, larger{}, scratch) : 0.0F;
    if constexpr (Means.of_values) {
      group.sync();
      gather(group, summaries.lowest, head, first, infinity, smaller{}, scratch);
      float const lowest = is_writer ? join(group.lane, smaller{}, scratch) : 0.0F;
      group.sync();
      gather(group, summaries.sum, head, first, 0.0F, sum_of_two{}, scratch);
      if (is_writer) {
        float const mean = mean_of(add(group.lane, scratch), value_sample.count(values.length(head)));
        value_mean[to] = mean;
        magnitude = channel_summary{0.0F, lowest, magnitude}.magnitude(mean);
      }
    }
    if (is_writer) {
      absolute_maximum_or_nan_reducer const known;
      float largest = known.value(__float_as_uint(magnitude));
      if constexpr (Means.samples_values) {
        bool const is_whole = value_sample.step(values.length(head)) == 1;
        largest = is_whole ? largest : with_room(largest, room);
        beyond[to] = 0;
        if (first + group.lane == 0) {
          beyond[std::int64_t{heads} * channels + head] = 0;
        }
      }
      code_scale const fitted = fit_scale(largest, highest);
      value_scales[to] = fitted.scale;
      value_reciprocals[to] = fitted.reciprocal;
    }
  }

  struct larger {
    __device__ __forceinline__ float operator()(float a, float b) const { return maximum_or_nan(a, b); }
  };
  struct smaller {
    __device__ __forceinline__ float operator()(float a, float b) const { return minimum_or_nan(a, b); }
  };
  struct sum_of_two {
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
  };

  __device__ __forceinline__ static float mean_of(float sum, std::int64_t count) {
    float const mean = count > 0 ? sum / static_cast<float>(count) : 0.0F;
    return is_finite(mean) ? mean : 0.0F;
  }

  __device__ __forceinline__ static float add(int channel, scratch_type const& scratch) {
    float found[parts];
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      found[i] = scratch.numbers[i][channel];
    }
    return detail::add_halves(found);
  }
  template <class Combine>
  __device__ __forceinline__ static float join(int channel, Combine combine, scratch_type const& scratch) {
    float joined = scratch.numbers[0][channel];
#pragma unroll
    for (int i = 1; i < parts; ++i) {
      joined = combine(joined, scratch.numbers[i][channel]);
    }
    return joined;
  }
  /// Combines the tiles part, part + 32 ... in order. A sum that begins with 0 is never -0, so that 0 may stand for
  /// tiles that do not exist.
  template <class Combine>
  __device__ __forceinline__ void gather(cuda_block<lanes> const& group, float const* from, std::int32_t head,
                                         std::int32_t first, float nothing, Combine combine,
                                         scratch_type& scratch) const {
    constexpr int quads = piece / 4;
    int const part = group.lane / quads;
    std::int32_t const channel = first + group.lane % quads * 4;
    std::int32_t const end = channel < channels ? tiles : 0;
    float const* const of_head = from + std::int64_t{head} * tiles * channels + channel;
    float4 all = {nothing, nothing, nothing, nothing};
#pragma unroll 1
    for (std::int32_t at = part; at < end; at += ahead * parts) {
      float4 found[ahead];
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        std::int32_t const tile = at + i * parts;
        found[i] = {nothing, nothing, nothing, nothing};
        if (tile < end) {
          found[i] = load_from_l2(reinterpret_cast<float4 const*>(of_head + std::int64_t{tile} * channels));
        }
      }
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        all = {combine(all.x, found[i].x), combine(all.y, found[i].y), combine(all.z, found[i].z),
               combine(all.w, found[i].w)};
      }
    }
    *reinterpret_cast<float4*>(&scratch.numbers[part][group.lane % quads * 4]) = all;
    group.sync();
  }
};

}  // namespace v0
}  // namespace tessera
