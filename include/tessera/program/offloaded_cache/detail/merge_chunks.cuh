// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `join_chunks`: a faster merge_chunks (program/offloaded_cache/attend_chunks.hpp). A warp takes a row, each lane four
/// channels of it, and loads many splits at a time instead of one after the other.
///
/// With the paper's parameters a row has 20 splits of 128 channels, all of which are loaded at once. 16 sequences of 32
/// query heads read 5.2 MB, which is still in a cache.
#pragma once

#include <cstdint>

#include <tessera/core/fast_divisor.hpp>
#include <tessera/program/offloaded_cache/attend_chunks.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

template <class T, class E, class Result>
struct join_chunks {
  /// The portable program, whose members are the arguments.
  using call_type = merge_chunks<T, E, Result>;
  static constexpr int lanes = 32;
  static constexpr int groups_per_block = 4;
  static constexpr int at_a_time = 24;  ///< splits that are loaded at a time
  struct scratch_type {};

  call_type call;         ///< extents, lengths, step and results
  fast_divisor by_heads;  ///< the number of query heads, as a divisor
  std::int32_t splits;    ///< the splits of each row, over resident and selected chunks

  /// The program for a call of fewer than 2^31 groups.
  [[nodiscard]] static join_chunks of(call_type const& call) {
    return {call, fast_divisor::of(static_cast<std::uint32_t>(call.extents.query_heads)),
            static_cast<std::int32_t>(resident_splits(call.extents) + selected_splits(call.extents))};
  }
  [[nodiscard]] std::int64_t groups() const { return call.groups(); }

  __device__ __forceinline__ void operator()(cuda_warp const& group, std::int64_t which, scratch_type&) const {
    std::uint32_t const at = by_heads.quotient(static_cast<std::uint32_t>(which));
    std::uint32_t const head = static_cast<std::uint32_t>(which) - at * by_heads.divisor;
    bool const is_there = call.step.sequence(call.extents, call.sequences, at) >= 0;
    for (int first_channel = 0; first_channel < static_cast<int>(call.extents.channels); first_channel += 4 * lanes) {
      int const channel = first_channel + 4 * group.lane;
      sums all{-infinity, 0.0F, {0.0F, 0.0F, 0.0F, 0.0F}};
      for (std::int32_t first = 0; is_there && first < splits; first += at_a_time) {
        add(group, all, at, head, channel, first);
      }
      if (channel < static_cast<int>(call.extents.channels)) {
        write(all, at, head, channel, is_there);
      }
    }
  }

 private:
  /// Sums of a row's splits, relative to `reference`.
  struct sums {
    float reference;
    float weights;
    float totals[4];
  };

  __device__ __forceinline__ void add(cuda_warp const& group, sums& all, std::int64_t at, std::int64_t head,
                                      int channel, std::int32_t first) const {
    std::int32_t const count = min(splits - first, at_a_time);
    bool const has_channels = channel < static_cast<int>(call.extents.channels);
    per_lane<float, cuda_warp> reference;
    per_lane<float, cuda_warp> weight;
    reference[group.lane] = -infinity;
    weight[group.lane] = 0.0F;
    if (group.lane < count) {
      softmax_state<float> const& state = call.step.states(first + group.lane, at, head);
      reference[group.lane] = load_from_l2(&state.reference);
      weight[group.lane] = load_from_l2(&state.sum);
    }
    float4 parts[at_a_time];
#pragma unroll
    for (int i = 0; i < at_a_time; ++i) {
      parts[i] = i < count && has_channels
                     ? load_from_l2(reinterpret_cast<float4 const*>(&call.step.totals(first + i, at, head, channel)))
                     : float4{0.0F, 0.0F, 0.0F, 0.0F};
    }
    float const latest = fmaxf(all.reference, maximum(group, reference));
    float const known = latest == -infinity ? 0.0F : latest;
    float const before = fast_exp2(all.reference - known);
    float const by = fast_exp2(reference[group.lane] - known);
    weight[group.lane] *= by;
    all.reference = latest;
    all.weights = __fmaf_rn(all.weights, before, sum(group, weight));
    for (float& total : all.totals) {
      total *= before;
    }
#pragma unroll
    for (int i = 0; i < at_a_time; ++i) {
      float const of_split = shuffle(by, i);
      all.totals[0] = __fmaf_rn(parts[i].x, of_split, all.totals[0]);
      all.totals[1] = __fmaf_rn(parts[i].y, of_split, all.totals[1]);
      all.totals[2] = __fmaf_rn(parts[i].z, of_split, all.totals[2]);
      all.totals[3] = __fmaf_rn(parts[i].w, of_split, all.totals[3]);
    }
  }

  __device__ __forceinline__ void write(sums const& all, std::int64_t at, std::int64_t head, int channel,
                                        bool is_there) const {
    using softmax_type = online_softmax<float>;
    attention_row<softmax_state<float>> const found{{all.reference, all.reference, all.weights}, all.weights};
    finished_row const row = is_there ? finish_attention_row<softmax_type>(found, -infinity, 0.0F) : no_attention_row();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      call.results(at, head, channel + i) = store<Result>(row.inverse == 0.0F ? 0.0F : all.totals[i] * row.inverse);
    }
    if (channel == 0 && call.log_sum_exp.data != nullptr) {
      call.log_sum_exp(at, head) = row.log_sum_exp;
    }
  }
};

}  // namespace v0
}  // namespace tessera
