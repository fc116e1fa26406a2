// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `join_decoded`: puts together rows of attention whose keys were shared among a few blocks, as merge_attention does
/// (program/attention_rows.hpp); for decoding, where its time counts. A thread takes a channel of a row and asks for
/// all shares at once; a block is small enough to be there before those that make the shares have left.
#pragma once

#include <cstdint>

#include <tessera/core/known_divisor.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/attention_rows.hpp>
#include <tessera/program/cached_attention.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {

/// A group takes a row.
template <class Result>
struct join_decoded {
  using state_type = online_softmax<float>::state_type;
  using row_type = attention_row<state_type>;
  static_assert(sizeof(row_type) == sizeof(float4), "tessera: join_decoded loads rows as four words");
  static constexpr int lanes = 128;
  static constexpr int at_a_time = 16;  ///< shares
  struct scratch_type {};

  attention_partials<state_type> partials;  ///< the shares
  attention_writer<cached_attention_method, Result> results;
  known_divisor by_queries;  ///< queries of a sequence
  known_divisor by_heads;    ///< query heads of a sequence

  /// For the shares of a call.
  [[nodiscard]] static join_decoded of(attention_partials<state_type> const& partials,
                                       attention_writer<cached_attention_method, Result> const& results) {
    return {partials, results, known_divisor::of(static_cast<std::uint32_t>(results.shape.queries)),
            known_divisor::of(static_cast<std::uint32_t>(results.shape.query_heads))};
  }
  [[nodiscard]] std::int64_t groups() const {
    return results.shape.batch * results.shape.query_heads * results.shape.queries;
  }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which, scratch_type&) const {
    const auto number = static_cast<std::uint32_t>(which);
    const std::uint32_t of_heads = by_queries.quotient(number);
    const std::uint32_t sequence = by_heads.quotient(of_heads);
    const std::uint32_t head = of_heads - sequence * by_heads.divisor;
    const std::uint32_t query = number - of_heads * by_queries.divisor;
    for (int channel = group.lane; channel < static_cast<int>(results.shape.channels); channel += lanes) {
      take(sequence, head, query, channel);
    }
  }

 private:
  /// Adds up relative to `reference`.
  struct sums {
    float reference;
    float weights;
    float total;
  };

  __device__ __forceinline__ void take(std::uint32_t sequence, std::uint32_t head, std::uint32_t query,
                                       int channel) const {
    float const* const totals = &partials.totals(0, sequence, head, query, channel);
    auto const* const rows = reinterpret_cast<float4 const*>(&partials.rows(0, sequence, head, query));
    const auto count = static_cast<int>(partials.shares());
    sums all{-__int_as_float(0x7f800000), 0.0F, 0.0F};
    for (int first = 0; first < count; first += at_a_time) {
      add(all, rows, totals, first, count);
    }
    const row_type row{{all.reference, all.reference, all.weights}, all.weights};
    const finished_row finished = results.finish(sequence, head, query, row);
    results.out(sequence, head, query, channel) =
        store<Result>(finished.inverse != 0.0F ? all.total * finished.inverse : 0.0F);
    if (channel == 0) {
      results.write_log_sum_exp(sequence, head, query, finished);
    }
  }

  __device__ __forceinline__ void add(sums& all, float4 const* rows, float const* totals, int first, int count) const {
    float4 row[at_a_time];
    float total[at_a_time];
#pragma unroll
    for (int i = 0; i < at_a_time; ++i) {
      const std::int64_t share = min(first + i, count - 1);
      row[i] = load_from_l2(rows + share * partials.rows.strides[0]);
      total[i] = load_from_l2(totals + share * partials.totals.strides[0]);
    }
    float reference = all.reference;
#pragma unroll
    for (float4 const& one : row) {
      reference = fmaxf(reference, one.y);
    }
    const float known = reference == -__int_as_float(0x7f800000) ? 0.0F : reference;
    const float before = fast_exp2(all.reference - known);
    all = {reference, all.weights * before, all.total * before};
#pragma unroll
    for (int i = 0; i < at_a_time; ++i) {
      const float factor = first + i < count ? fast_exp2(row[i].y - known) : 0.0F;
      all.weights = __fmaf_rn(row[i].z, factor, all.weights);
      all.total = __fmaf_rn(total[i], factor, all.total);
    }
  }
};

}  // namespace v0
}  // namespace tessera
