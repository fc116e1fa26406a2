// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_output`: what a warp makes of its 16 rows of attention once all keys are done: divides by the sums of
/// weights, applies the values' scales and means, and writes bfloat16 or float16, and log-sum-exps.
///
/// Four lanes have 2 channels of 8 each; they exchange them, so that each writes 16 bytes.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/program/merge_attention_shares.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// Where a warp's rows belong.
struct warp_rows_place {
  std::int32_t batch;
  std::int32_t head;      ///< of queries, of this batch
  std::int32_t key_head;  ///< of all batches
  std::int32_t row;       ///< the warp's first
};

/// How a row's weights are related to the exponentials of its logits: their sum is `total` 2^reference / 448.
struct weighted_row {
  float total;
  float reference;
};

/// What a warp leaves of its rows where their keys are shared (merge_attention_shares.hpp).
struct attention_share_output {
  using slots_type = attention_share_slots<online_softmax<float>::state_type>;
  slots_type slots;

  /// sums: as for attention_output::write_rows. `row`: the warp's first, of the slot.
  template <int Channels, int Registers>
  __device__ __forceinline__ void write_rows(float const (&sums)[Registers], weighted_row const (&rows)[2],
                                             std::int32_t slot, std::int32_t row) const {
    constexpr float of_top = 1.0F / 448.0F;
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t own = row + lane / 4 + 8 * half;
      float* const to = slots.totals_of(slot, own) + 2 * (lane % 4);
#pragma unroll
      for (int channel = 0; channel < Channels; channel += 8) {
        const int at = channel / 2 + 2 * half;
        *reinterpret_cast<float2*>(to + channel) = float2{sums[at], sums[at + 1]};
      }
      if (lane % 4 == 0) {
        const float reference = rows[half].reference;
        slots.row_of(slot, own) = {{reference, reference, rows[half].total * of_top}, rows[half].total};
      }
    }
  }
};

template <class T>
struct attention_output {
  view<T, 4> target;            ///< batch, head, token, channel; channels lie next to each other
  bool has_whole_words;         ///< rows begin at multiples of 16 bytes
  float const* value_scales;    ///< batch, head of keys, channel
  float const* value_means;     ///< likewise, or null
  view<float, 3> log_sum_exps;  ///< batch, head of queries, token, or null
  float const* logit_offsets;   ///< likewise, one behind the other, added to log_sum_exps, or null

  __device__ __forceinline__ void write_log_sum_exps(weighted_row const (&rows)[2], warp_rows_place place) const {
    constexpr float ln_2 = 0.693147181F;
    constexpr float log2_of_top = 8.807354922F;
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    const auto queries = static_cast<std::int32_t>(target.extents[2]);
    if (log_sum_exps.data == nullptr || lane % 4 != 0) {
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t row = place.row + lane / 4 + 8 * half;
      if (row < queries) {
        const std::int64_t at = (place.batch * target.extents[1] + place.head) * queries + row;
        const float offset = logit_offsets == nullptr ? 0.0F : logit_offsets[at];
        const float sum = (fast_log2(rows[half].total) + (rows[half].reference - log2_of_top)) * ln_2 + offset;
        log_sum_exps(place.batch, place.head, row) = rows[half].total == 0.0F ? -infinity : sum;
      }
    }
  }

  /// sums[4 j + 2 h + i]: row lane / 4 + 8 h, channel 8 j + 2 (lane % 4) + i, of the target's channels, a multiple of
  /// 16 up to Most.
  template <int Most, int Registers>
  __device__ __forceinline__ void write_rows(float const (&sums)[Registers], weighted_row const (&rows)[2],
                                             warp_rows_place place) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    const auto channels = static_cast<std::int32_t>(target.extents[3]);
    float const* const scales = value_scales + std::int64_t{place.key_head} * channels + 2 * (lane % 4);
    float const* const means = value_means + std::int64_t{place.key_head} * channels + 2 * (lane % 4);
    const float inverse[2] = {rows[0].total == 0.0F ? 0.0F : fast_reciprocal(rows[0].total),
                              rows[1].total == 0.0F ? 0.0F : fast_reciprocal(rows[1].total)};
#pragma unroll
    for (int first = 0; first < Most; first += 32) {
      std::uint32_t words[2][4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int channel = first + 8 * j;
        if (channel >= channels) {
          words[0][j] = words[1][j] = 0;
          continue;
        }
        const float2 scale = *reinterpret_cast<float2 const*>(scales + channel);
        const float2 mean =
            value_means == nullptr ? float2{0.0F, 0.0F} : *reinterpret_cast<float2 const*>(means + channel);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = channel / 2 + 2 * half;
          const std::uint32_t both = pack_pair<T>(__fmaf_rn(sums[at] * inverse[half], scale.x, mean.x),
                                                  __fmaf_rn(sums[at + 1] * inverse[half], scale.y, mean.y));
          words[half][j] = rows[half].total == 0.0F ? 0 : both;  // also where a scale is NaN
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        exchange(words[half]);
        const std::int32_t row = place.row + lane / 4 + 8 * half;
        const std::int32_t channel = first + 8 * (lane % 4);
        if (row < target.extents[2] && channel < channels) {
          store(&target(place.batch, place.head, row, channel), words[half]);
        }
      }
    }
  }

 private:
  /// Word j of lane t of four to word t of lane j.
  __device__ __forceinline__ static void exchange(std::uint32_t (&words)[4]) {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      const bool is_upper = (threadIdx.x & static_cast<unsigned>(distance)) != 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if ((j & distance) == 0) {
          std::uint32_t& low = words[j];
          std::uint32_t& high = words[j + distance];
          const std::uint32_t received = __shfl_xor_sync(0xffffffffU, is_upper ? low : high, distance);
          low = is_upper ? received : low;
          high = is_upper ? high : received;
        }
      }
    }
  }

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
};

}  // namespace v0
}  // namespace tessera
