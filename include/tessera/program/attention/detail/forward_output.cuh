// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_output`: the epilogue of warpgroup_attention. Once all keys are done, a warp divides its 16 rows by
/// their sums of weights, those of sinks included, applies the values' scales and means, and writes results in bfloat16
/// or float16, and log-sum-exps, where the rows of the sequence belong.
///
/// Each of four lanes has 2 channels of every 8; they exchange them, so that each writes 16 bytes.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/program/attention/detail/merge_forward_splits.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// Where a warp's rows belong.
struct warp_rows {
  std::int32_t batch;     ///< number of the sequence
  std::int32_t head;      ///< query head of the sequence
  std::int32_t key_head;  ///< key head, counted over all sequences
  std::int32_t row;       ///< the warp's first row
  std::int32_t queries;   ///< queries of the sequence; rows beyond them do not exist

  /// The lane's first row (`half` = 0) or second row.
  [[nodiscard]] __device__ __forceinline__ std::int32_t row_of(int half) const {
    return row + static_cast<std::int32_t>(thread_index() % 32 / 4) + 8 * half;
  }
};

/// The weights of a row: the sum of the exponentials of its logits is `total` 2^reference / 448.
struct weighted_row {
  float total;      ///< sum of the rounded weights, in units of codes
  float reference;  ///< what the row's weights are relative to, in base 2

  /// Reads the rows of a lane. `outputs`: its sums, the last two of which are sums of weights in the first lane of
  /// four. Rows: an attention_rows.
  template <int Registers, class Rows>
  __device__ __forceinline__ static void read(float const (&outputs)[Registers], Rows const& of_lane,
                                              weighted_row (&rows)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows[half].total = shuffle(outputs[Registers - 2 + half], static_cast<int>(thread_index() & 28U));
      rows[half].reference = of_lane.reference(half);
    }
  }
};

/// Writes the partial results of a warp's rows where their keys are split (attention/detail/merge_forward_splits.hpp).
struct attention_split_output {
  /// The slots of memory for splits.
  using slots_type = attention_split_slots<online_softmax<float>::state_type>;
  slots_type slots;  ///< one slot for each split

  /// Writes a warp's rows. `sums`: as for attention_output::write_rows. `row`: the warp's first row in the slot.
  template <int Channels, int Registers>
  __device__ __forceinline__ void write_rows(float const (&sums)[Registers], weighted_row const (&rows)[2],
                                             std::int32_t slot, std::int32_t row) const {
    constexpr float of_top = 1.0F / 448.0F;
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
    float* const first = slots.totals_of(slot, row + lane / 4) + 2 * (lane % 4);
    float* const second = first + 8 * slots.pitch;
    static_assert(slots_type::place_of(0) == 1 && slots_type::place_of(1) == 0);
#pragma unroll
    for (int channel = 0; channel < Channels; channel += 8) {
      int const at = channel / 2;
      *reinterpret_cast<float2*>(first + channel) = float2{sums[at + 1], sums[at]};
      *reinterpret_cast<float2*>(second + channel) = float2{sums[at + 3], sums[at + 2]};
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::int32_t const own = row + lane / 4 + 8 * half;
      if (lane % 4 == 0) {
        float const reference = rows[half].reference;
        slots.row_of(slot, own) = {{reference, reference, rows[half].total * of_top}, rows[half].total};
      }
    }
  }
};

template <class T>
struct attention_output {
  view<T, 4> target;              ///< results: batch, head, token, channel; channels lie next to each other
  bool has_whole_words;           ///< whether rows begin at multiples of 16 bytes
  float const* value_scales;      ///< batch, key head, channel
  float const* value_means;       ///< batch, key head, channel; or null
  view<float, 3> log_sum_exps;    ///< batch, query head, token; or null
  float const* logit_offsets;     ///< how much logits are too small: batch, query head, token, contiguous; or null
  array_view<float const> sinks;  ///< a logit for each query head, or null
  sequence_starts starts;         ///< where results of sequences begin

  /// Finishes a row. With the sink's weight w beside the sum s of the others it computes s / (s + w) and log(s + w)
  /// from log2(w / s).
  [[nodiscard]] __device__ __forceinline__ finished_row finish(weighted_row const& row, warp_rows of, int half) const {
    constexpr float ln_2 = 0.693147181F;
    constexpr float log2_of_top = 8.807354922F;
    std::int32_t const query = of.row_of(half);
    if (query >= of.queries) {
      return no_attention_row();
    }
    float const sink = sinks.data == nullptr ? -infinity : sinks[of.head];
    if (row.total == 0.0F) {
      return {0.0F, 0.0F, sink};
    }
    float const offset = logit_offsets == nullptr ? 0.0F : logit_offsets[offset_index(of, query)];
    float const log2_sum = fast_log2(row.total) + (row.reference - log2_of_top);
    if (sink == -infinity) {
      return {fast_reciprocal(row.total), 1.0F, log2_sum * ln_2 + offset};
    }
    float const apart = (sink - offset) / ln_2 - log2_sum;
    float const share = fast_reciprocal(1.0F + fast_exp2(apart));
    float const log2_all = fmaxf(log2_sum, log2_sum + apart) + fast_log2(1.0F + fast_exp2(-fabsf(apart)));
    return {share * fast_reciprocal(row.total), share, log2_all * ln_2 + offset};
  }

  /// Finishes a warp's rows and writes them. `sums`: as for write_rows().
  template <int Most, int Registers>
  __device__ __forceinline__ void write(float const (&sums)[Registers], weighted_row const (&rows)[2],
                                        warp_rows const& of) const {
    finished_row const finished[2] = {finish(rows[0], of, 0), finish(rows[1], of, 1)};
    write_rows<Most>(sums, finished, of);
    write_log_sum_exps(finished, of);
  }

  /// Writes the log-sum-exps of the lane's rows, by one lane of the four that have a row.
  __device__ __forceinline__ void write_log_sum_exps(finished_row const (&rows)[2], warp_rows of) const {
    if (log_sum_exps.data == nullptr || thread_index() % 4 != 0) {
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::int64_t const at = token_of(of, of.row_of(half));
      if (at >= 0) {
        log_sum_exps(of.batch, of.head, at) = rows[half].log_sum_exp;
      }
    }
  }

  /// Writes the results of a warp's rows. sums[4 j + 2 h + i] is row lane / 4 + 8 h, channel 8 j + 2 (lane % 4) + i.
  /// The target has a multiple of 16 channels, up to Most.
  template <int Most, int Registers>
  __device__ __forceinline__ void write_rows(float const (&sums)[Registers], finished_row const (&rows)[2],
                                             warp_rows of) const {
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
    auto const channels = static_cast<std::int32_t>(target.extents[3]);
    float const* const scales = value_scales + std::int64_t{of.key_head} * channels + 2 * (lane % 4);
    float const* const means = value_means + std::int64_t{of.key_head} * channels + 2 * (lane % 4);
    T* const to[2] = {channels_of(of, of.row_of(0)), channels_of(of, of.row_of(1))};
    constexpr int together = Most < 64 ? Most : 64;
#pragma unroll
    for (int begin = 0; begin < Most; begin += together) {
      float2 scale[together / 8];
      float2 mean[together / 8];
      load_factors(scales + begin, channels - begin, scale);
      load_factors(means + begin, value_means == nullptr ? 0 : channels - begin, mean);
#pragma unroll
      for (int first = 0; first < together; first += 32) {
        std::uint32_t words[2][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          int const channel = first + 8 * j;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            int const at = (begin + channel) / 2 + 2 * half;
            float2 const of_channels = scale[channel / 8];
            float2 const added = mean[channel / 8];
            float const share = rows[half].share;
            float const inverse = rows[half].inverse;
            std::uint32_t const both = pack_pair<T>(__fmaf_rn(sums[at] * inverse, of_channels.x, share * added.x),
                                                    __fmaf_rn(sums[at + 1] * inverse, of_channels.y, share * added.y));
            words[half][j] = inverse == 0.0F ? 0 : both;  // also where a scale is NaN
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          exchange(words[half]);
          if (to[half] != nullptr && begin + first + 8 * static_cast<int>(lane % 4) < channels) {
            store(to[half] + begin + first, words[half]);
          }
        }
      }
    }
  }

  /// Loads pairs of factors of channels, each 8 behind the one before; zeros beyond the last of `channels`. All are on
  /// their way before the first is used: one by one, each would wait for L2.
  template <int Count>
  __device__ __forceinline__ static void load_factors(float const* from, std::int32_t channels,
                                                      float2 (&factors)[Count]) {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      factors[i] = 8 * i < channels ? *reinterpret_cast<float2 const*>(from + 8 * i) : float2{0.0F, 0.0F};
    }
  }

  /// Where the lane's channels of a row are; null: nowhere.
  [[nodiscard]] __device__ __forceinline__ T* channels_of(warp_rows of, std::int32_t query) const {
    std::int64_t const token = token_of(of, query);
    return token < 0 ? nullptr : &target(of.batch, of.head, token, 8 * static_cast<std::int32_t>(thread_index() % 4));
  }

  /// Transposes words among each four lanes: word j of lane t becomes word t of lane j.
  __device__ __forceinline__ static void exchange(std::uint32_t (&words)[4]) {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      bool const is_upper = (thread_index() & static_cast<unsigned>(distance)) != 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if ((j & distance) == 0) {
          std::uint32_t& low = words[j];
          std::uint32_t& high = words[j + distance];
          std::uint32_t const received = shuffle_xor(is_upper ? low : high, distance);
          low = is_upper ? received : low;
          high = is_upper ? high : received;
        }
      }
    }
  }

  /// Stores eight neighbouring channels.
  __device__ __forceinline__ void store(T* to, std::uint32_t const (&words)[4]) const {
    if (has_whole_words) {
      *reinterpret_cast<uint4*>(to) = uint4{words[0], words[1], words[2], words[3]};
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      reinterpret_cast<std::uint16_t*>(to)[i] = static_cast<std::uint16_t>(words[i / 2] >> (16 * (i % 2)));
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ std::int64_t offset_index(warp_rows of, std::int32_t query) const {
    return (of.batch * target.extents[1] + of.head) * target.extents[2] + query;
  }
  /// Where a row is written; -1: nowhere, for behind a sequence that is not padded the next one begins.
  [[nodiscard]] __device__ __forceinline__ std::int64_t token_of(warp_rows of, std::int32_t query) const {
    if (starts.first.data == nullptr) {
      return query < target.extents[2] ? query : -1;
    }
    return query < of.queries ? starts.row_of(of.batch, query) : -1;
  }
};

}  // namespace v0
}  // namespace tessera
