// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `join_decoded`: merges the splits of rows of attention (split-KV), as merge_attention does
/// (program/attention/split_keys.hpp); for decoding, where the time of merging counts.
///
/// A thread block takes 32 channels of a row, and each of its four warps every fourth split, so that all splits of a
/// row are loaded at once, by as many blocks as there are multiprocessors. Blocks are small enough to be resident, and
/// to know which rows they merge, before the blocks that compute the splits have ended. The order of additions depends
/// on the number of splits alone.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>
#include <tessera/tile/rows/lane_rows.cuh>
#include <tessera/tile/rows/settle_parts.hpp>

namespace tessera {
inline namespace v0 {

/// Merges splits of rows and writes results. A group takes 32 channels of a row.
template <class Method, class Result>
struct join_decoded {
  using softmax_type = typename Method::softmax;
  using state_type = typename softmax_type::state_type;
  using row_type = attention_row<state_type>;
  static_assert(sizeof(row_type) == sizeof(float4), "tessera: join_decoded loads rows as four words");
  static constexpr int parts = 4;  ///< warps, which take splits round-robin
  static constexpr int lanes = 32 * parts;
  static constexpr int columns = 32;                                 ///< channels of a group
  static constexpr int warp_splits = most_attention_splits / parts;  ///< splits that a warp adds up
  static constexpr int blocks_per_multiprocessor = 6;  ///< so few registers that a block fits beside other programs
  static constexpr bool waits_for_stream = true;

  struct scratch_type {
    float totals[parts][columns];  ///< sums of each warp
  };

  attention_partials<state_type> partials;  ///< the splits
  attention_writer<Method, Result> results;
  fast_divisor by_columns;  ///< divides by the number of groups of a row
  fast_divisor by_queries;  ///< divides by the number of queries of a sequence
  fast_divisor by_heads;    ///< divides by the number of query heads of a sequence

  /// The program for the splits of a call. The number of groups must fit into 31 bits.
  [[nodiscard]] static join_decoded of(attention_partials<state_type> const& partials,
                                       attention_writer<Method, Result> const& results) {
    attention_shape const& s = results.shape;
    auto const divisor = [](std::int64_t number) { return fast_divisor::of(static_cast<std::uint32_t>(number)); };
    return {partials, results, divisor(divide_up(s.channels_of_values(), std::int64_t{columns})), divisor(s.queries),
            divisor(s.query_heads)};
  }
  [[nodiscard]] std::int64_t groups() const {
    return results.shape.batch * results.shape.query_heads * results.shape.queries * by_columns.divisor;
  }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    auto const number = static_cast<std::uint32_t>(which);
    std::uint32_t const row = by_columns.quotient(number);
    std::uint32_t const head = by_queries.quotient(row);
    std::uint32_t const sequence = by_heads.quotient(head);
    coordinates const at{sequence, head - sequence * by_heads.divisor, row - head * by_queries.divisor};
    int const lane = group.lane % 32;
    int const part = group.lane / 32;
    auto const channel = static_cast<int>(number - row * by_columns.divisor) * columns + lane;
    auto const channels = static_cast<int>(results.shape.channels_of_values());
    let_next_kernel_start();
    wait_for_stream();
    value_terms const terms = results.terms_of(at.sequence, at.head, min(channel, channels - 1));
    row_type whole;
    scratch.totals[part][lane] = add(at, min(channel, channels - 1), part, whole);
    finished_row const finished = results.finish(at.sequence, at.head, at.query, whole);
    group.sync();
    if (part == 0 && channel < channels) {
      float total = scratch.totals[0][lane];
#pragma unroll
      for (int other = 1; other < parts; ++other) {
        total += scratch.totals[other][lane];
      }
      results.write(at.sequence, at.head, at.query, channel, finished, terms, total);
      if (channel == 0) {
        results.write_log_sum_exp(at.sequence, at.head, at.query, finished);
      }
    }
  }

 private:
  struct coordinates {
    std::uint32_t sequence;
    std::uint32_t head;
    std::uint32_t query;
  };
  using reducer_type = part_reducer<softmax_type, row_type>;
  using rows_type = lane_rows<row_type, 1, most_attention_splits, cuda_warp>;  ///< a column is a split
  using factors_type = lane_rows<float, 1, most_attention_splits, cuda_warp>;

  /// The sum of a warp's splits in a channel, relative to the largest reference of all splits. `whole` becomes the
  /// state of all splits, the same in all warps.
  __device__ __forceinline__ float add(coordinates const& at, int channel, int part, row_type& whole) const {
    cuda_warp const warp;
    float const* const totals = &partials.totals(0, at.sequence, at.head, at.query, channel);
    auto const* const rows = reinterpret_cast<float4 const*>(&partials.rows(0, at.sequence, at.head, at.query));
    auto const count = static_cast<int>(partials.splits());
    reducer_type const reducer;
    typename rows_type::sum_tile of_splits;
    rows_type::each_with_row(warp, of_splits, [&](int, int split, row_type& one) {
      one = split < count ? row_from(load_from_l2(rows + split * partials.rows.strides[0])) : reducer.identity();
    });
    float total[warp_splits];
#pragma unroll
    for (int i = 0; i < warp_splits; ++i) {
      int const split = part + parts * i;
      total[i] = split < count ? load_from_l2(totals + split * partials.totals.strides[0]) : 0.0F;
    }
    typename factors_type::sum_tile factors;
    typename rows_type::template row_values<row_type> wholes;
    settle_parts<rows_type, factors_type>(warp, reducer, of_splits, factors, wholes);
    rows_type::each_row(
        warp, [&](int, row_type const& of_row) { whole = of_row; }, wholes);
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < warp_splits; ++i) {
      float const by = factors_type::at(warp, factors, 0, parts * i / 32 * 32, part + parts * i % 32);
      sum = part + parts * i < count ? __fmaf_rn(total[i], by, sum) : sum;
    }
    return sum;
  }
  __device__ __forceinline__ static row_type row_from(float4 const& four) {
    return {{four.x, four.y, four.z}, four.w};
  }
};

}  // namespace v0
}  // namespace tessera
