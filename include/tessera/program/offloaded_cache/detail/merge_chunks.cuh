// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `join_chunks`: a faster merge_chunks (program/offloaded_cache/attend_chunks.hpp). A warp takes a row, each lane four
/// channels of it, and loads many splits at a time instead of one after the other.
///
/// With the paper's parameters a row has 20 splits of 128 channels, all of which are loaded at once. 16 sequences of 32
/// query heads read 5.2 MB, which is still in a cache.
#pragma once

#include <cstdint>

#include <tessera/core/fast_divisor.hpp>
#include <tessera/program/attention/decode_fragments.cuh>
#include <tessera/program/offloaded_cache/attend_chunks.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/rows/lane_rows.cuh>
#include <tessera/tile/rows/settle_parts.hpp>

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
      part_type all = relative_reducer<4>{}.identity();
      for (std::int32_t first = 0; is_there && first < splits; first += at_a_time) {
        add(group, all, at, head, channel, first);
      }
      if (channel < static_cast<int>(call.extents.channels)) {
        write(all, at, head, channel, is_there);
      }
    }
  }

 private:
  using part_type = relative_part<4>;  ///< four channels of a row
  /// The states of some splits of a row: a column is a split.
  using states_type = lane_rows<relative_part<0>, 1, 32, cuda_warp>;
  using factors_type = lane_rows<float, 1, 32, cuda_warp>;  ///< what their sums are multiplied by
  static_assert(at_a_time <= states_type::columns);

  /// Merges the splits from `first` on.
  __device__ __forceinline__ void add(cuda_warp const& group, part_type& all, std::int64_t at, std::int64_t head,
                                      int channel, std::int32_t first) const {
    std::int32_t const count = min(splits - first, at_a_time);
    bool const has_channels = channel < static_cast<int>(call.extents.channels);
    typename states_type::sum_tile states;
    states_type::each_with_row(group, states, [&](int, int split, relative_part<0>& state) {
      state = relative_reducer<0>{}.identity();
      if (split < count) {
        softmax_state<float> const& of_split = call.step.states(first + split, at, head);
        state.state = {load_from_l2(&of_split.reference), load_from_l2(&of_split.sum)};
      }
    });
    float4 parts[at_a_time];
#pragma unroll
    for (int i = 0; i < at_a_time; ++i) {
      parts[i] = i < count && has_channels
                     ? load_from_l2(reinterpret_cast<float4 const*>(&call.step.totals(first + i, at, head, channel)))
                     : float4{0.0F, 0.0F, 0.0F, 0.0F};
    }
    typename factors_type::sum_tile factors;
    typename states_type::template row_values<relative_part<0>> whole;
    settle_parts<states_type, factors_type>(group, relative_reducer<0>{}, states, factors, whole);
    part_type some{};
    states_type::each_row(
        group, [&](int, relative_part<0> const& row) { some.state = row.state; }, whole);
#pragma unroll
    for (int i = 0; i < at_a_time; ++i) {
      float const by = factors_type::at(group, factors, 0, 0, i);
      some.values[0] = __fmaf_rn(parts[i].x, by, some.values[0]);
      some.values[1] = __fmaf_rn(parts[i].y, by, some.values[1]);
      some.values[2] = __fmaf_rn(parts[i].z, by, some.values[2]);
      some.values[3] = __fmaf_rn(parts[i].w, by, some.values[3]);
    }
    relative_reducer<4>{}.merge(all, some);
  }

  __device__ __forceinline__ void write(part_type const& all, std::int64_t at, std::int64_t head, int channel,
                                        bool is_there) const {
    using softmax_type = online_softmax<float>;
    auto const [reference, weights] = all.state;
    attention_row<softmax_state<float>> const found{{reference, reference, weights}, weights};
    finished_row const row = is_there ? finish_attention_row<softmax_type>(found, -infinity, 0.0F) : no_attention_row();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      call.results(at, head, channel + i) = store<Result>(row.inverse == 0.0F ? 0.0F : all.values[i] * row.inverse);
    }
    if (channel == 0 && call.log_sum_exp.data != nullptr) {
      call.log_sum_exp(at, head) = row.log_sum_exp;
    }
  }
};

}  // namespace v0
}  // namespace tessera
