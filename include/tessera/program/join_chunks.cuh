// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `join_chunks`: merge_chunks (program/attend_chunks.hpp) where its time counts: a thread takes a channel of a row and
/// asks for many shares at a time, instead of for one after the other.
#pragma once

#include <cstdint>

#include <tessera/core/known_divisor.hpp>
#include <tessera/program/attend_chunks.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {

template <class T, class E, class Result>
struct join_chunks {
  /// The portable program, whose members say what is to be done.
  using call_type = merge_chunks<T, E, Result>;
  static constexpr int lanes = 128;
  static constexpr int at_a_time = 8;  ///< shares
  struct scratch_type {};

  call_type call;          ///< extents, lengths, step and results
  known_divisor by_heads;  ///< query heads
  std::int32_t shares;     ///< of each row, over what is resident and what is selected

  /// Of fewer than 2^31 groups.
  [[nodiscard]] static join_chunks of(call_type const& call) {
    return {call, known_divisor::of(static_cast<std::uint32_t>(call.extents.query_heads)),
            static_cast<std::int32_t>(resident_shares(call.extents) + selected_shares(call.extents))};
  }
  [[nodiscard]] std::int64_t groups() const { return call.groups(); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which, scratch_type&) const {
    const std::uint32_t at = by_heads.quotient(static_cast<std::uint32_t>(which));
    const std::uint32_t head = static_cast<std::uint32_t>(which) - at * by_heads.divisor;
    const bool is_there = call.step.sequence(call.extents, call.sequences, at) >= 0;
    for (int channel = group.lane; channel < static_cast<int>(call.extents.channels); channel += lanes) {
      sums all{-infinity, 0.0F, 0.0F};
      for (std::int32_t first = 0; is_there && first < shares; first += at_a_time) {
        add(all, at, head, channel, first);
      }
      write(all, at, head, channel, is_there);
    }
  }

 private:
  /// Adds up relative to `reference`.
  struct sums {
    float reference;
    float weights;
    float total;
  };

  __device__ __forceinline__ void add(sums& all, std::int64_t at, std::int64_t head, std::int64_t channel,
                                      std::int32_t first) const {
    float references[at_a_time];
    float weights[at_a_time];
    float totals[at_a_time];
#pragma unroll
    for (int i = 0; i < at_a_time; ++i) {
      const std::int64_t share = min(first + i, shares - 1);
      softmax_state<float> const& state = call.step.states(share, at, head);
      references[i] = load_from_l2(&state.reference);
      weights[i] = load_from_l2(&state.sum);
      totals[i] = load_from_l2(&call.step.totals(share, at, head, channel));
    }
    float reference = all.reference;
#pragma unroll
    for (const float other : references) {
      reference = fmaxf(reference, other);
    }
    const float known = reference == -infinity ? 0.0F : reference;
    const float before = fast_exp2(all.reference - known);
    all = {reference, all.weights * before, all.total * before};
#pragma unroll
    for (int i = 0; i < at_a_time; ++i) {
      const float by = first + i < shares ? fast_exp2(references[i] - known) : 0.0F;
      all.weights = __fmaf_rn(weights[i], by, all.weights);
      all.total = __fmaf_rn(totals[i], by, all.total);
    }
  }

  __device__ __forceinline__ void write(sums const& all, std::int64_t at, std::int64_t head, std::int64_t channel,
                                        bool is_there) const {
    using softmax_type = online_softmax<float>;
    const attention_row<softmax_state<float>> found{{all.reference, all.reference, all.weights}, all.weights};
    const finished_row row = is_there ? finish_attention_row<softmax_type>(found, -infinity, 0.0F) : no_attention_row();
    call.results(at, head, channel) = store<Result>(row.inverse == 0.0F ? 0.0F : all.total * row.inverse);
    if (channel == 0 && call.log_sum_exp.data != nullptr) {
      call.log_sum_exp(at, head) = row.log_sum_exp;
    }
  }
};

}  // namespace v0
}  // namespace tessera
