// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `decode_schedule`: the schedule of attention of few queries, and its last step, which merges the partial results of
/// a block's warps and writes results. It is for programs in which each warp keeps its own decode_columns.
///
/// A work item (`decode_work_item`) is up to eight rows of a key head and a split of its keys. The rows are the queries
/// of all query heads that share the key head, head after head. The split has steps split, split + splits, ... of the
/// sequence; a step is what a warp takes at a time.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/attention/decode_fragments.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/worker_warps.cuh>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// A work item: up to eight rows of a key head, and a split of its keys.
struct decode_work_item {
  std::int32_t sequence;   ///< number of the sequence in the batch
  std::int32_t key_head;   ///< number of the key head in the sequence
  std::int32_t split;      ///< number of the split of the keys
  std::int32_t first_row;  ///< the first of the rows of the key head
};

/// The partial results that a warp leaves to the others of its block.
template <int Channels>
struct decode_split {
  static constexpr int padded_channels = Channels + 4;  ///< so that rows of four lanes lie in different banks
  float reference[decode_rows];                         ///< reference of each row, in base 2
  float sum[decode_rows];                               ///< sums of weights
  float totals[decode_rows][padded_channels];           ///< sums of weighted values
};

/// The data that warps need when they begin a work item, loaded ahead with its first keys; `Slots` work items
/// alternate. A work item is a step of the ring.
template <int Channels, int Slots>
struct decode_ahead {
  using count_type = pipeline_count<Slots>;                               ///< how many work items there were
  static constexpr int row_bytes = 2 * Channels;                          ///< bytes of a query
  alignas(16) unsigned char queries[Slots][decode_rows][row_bytes + 16];  ///< queries; rows lie in different banks
  stage_ring<Slots> ring;                                                 ///< of work items
  std::int32_t length[Slots];                                             ///< tokens of the work item's sequence
  std::int32_t steps[Slots];  ///< steps of the sequence or of the work item, as the program counts them

  /// Initialises the barriers, by one thread before all others use them. One lane of each warp releases a slot.
  __device__ __forceinline__ void init(int warps) { ring.init(1, warps); }
};

/// The schedule and the end of decoding. Warps: how many warps of a block keep columns. T: the type of queries.
template <int Channels, int Warps, class T, class Result>
struct decode_schedule {
  using softmax_type = online_softmax<float>;
  using row_type = attention_row<softmax_type::state_type>;
  using columns_type = decode_columns<Channels>;
  using outputs_type = typename columns_type::outputs_type;  ///< the words for outputs
  using split_type = decode_split<Channels>;
  static constexpr int strips = Channels / 16;

  head_view<T const> queries;  ///< sequence x query head x query x channel
  bool is_causal;
  attention_writer<decode_method, Result> results;
  attention_partials<softmax_type::state_type> partials;
  std::int32_t rows;        ///< rows of a key head
  std::int32_t head_group;  ///< query heads of a key head
  std::uint32_t count;      ///< the number of all work items
  fast_divisor by_blocks;   ///< divides by the number of blocks of eight rows of a key head
  fast_divisor by_splits;   ///< divides by the number of splits of a key head's keys
  fast_divisor by_heads;    ///< divides by the number of key heads of a sequence
  fast_divisor by_queries;  ///< divides by the number of queries of a sequence

  /// The schedule of a call. The numbers of work items and of rows must fit into 31 bits.
  [[nodiscard]] static decode_schedule of(head_view<T const> const& queries, bool is_causal,
                                          attention_writer<decode_method, Result> const& results,
                                          attention_partials<softmax_type::state_type> const& partials) {
    attention_shape const& s = results.shape;
    auto const word = [](std::int64_t number) { return static_cast<std::uint32_t>(number); };
    std::int64_t const group = s.query_heads / s.key_heads;
    std::int64_t const blocks = divide_up(group * s.queries, std::int64_t{decode_rows});
    return {queries,
            is_causal,
            results,
            partials,
            static_cast<std::int32_t>(group * s.queries),
            static_cast<std::int32_t>(group),
            word(partials.splits() * s.batch * s.key_heads * blocks),
            fast_divisor::of(word(blocks)),
            fast_divisor::of(word(partials.splits())),
            fast_divisor::of(word(s.key_heads)),
            fast_divisor::of(word(s.queries))};
  }

  /// The number of splits of a key head's keys.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t splits() const {
    return static_cast<std::int32_t>(by_splits.divisor);
  }

  /// Work item `number`. Work items that read the same keys follow each other.
  [[nodiscard]] __device__ __forceinline__ decode_work_item at(std::uint32_t number) const {
    std::uint32_t const split = by_blocks.quotient(number);
    std::uint32_t const head = by_splits.quotient(split);
    std::uint32_t const sequence = by_heads.quotient(head);
    return {static_cast<std::int32_t>(sequence), static_cast<std::int32_t>(head - sequence * by_heads.divisor),
            static_cast<std::int32_t>(split - head * by_splits.divisor),
            static_cast<std::int32_t>(number - split * by_blocks.divisor) * decode_rows};
  }
  /// How many steps a work item's split has, of `steps` of the sequence.
  [[nodiscard]] __device__ __forceinline__ std::int32_t steps_of(decode_work_item const& work,
                                                                 std::int32_t steps) const {
    std::int32_t const last = steps - work.split - 1;
    return last >= 0 ? static_cast<std::int32_t>(by_splits.quotient(static_cast<std::uint32_t>(last))) + 1 : 0;
  }

  /// The query that a row is.
  struct row_coordinates {
    std::int32_t head;   ///< number of the query head in the sequence
    std::int32_t query;  ///< number of the query in the sequence
  };
  /// The query that row `row` of a work item is.
  [[nodiscard]] __device__ __forceinline__ row_coordinates row_of(decode_work_item const& work, int row) const {
    auto const which = static_cast<std::uint32_t>(work.first_row + row);
    std::uint32_t const of_group = by_queries.quotient(which);
    return {work.key_head * head_group + static_cast<std::int32_t>(of_group),
            static_cast<std::int32_t>(which - of_group * by_queries.divisor)};
  }
  /// How many tokens a row sees.
  [[nodiscard]] __device__ __forceinline__ std::int32_t seen(decode_work_item const& work, int row,
                                                             std::int32_t length) const {
    if (!is_causal) {
      return length;
    }
    auto const count_of_queries =
        static_cast<std::int32_t>(length_of(results.query_lengths, work.sequence, results.shape.queries));
    return max(length - max(count_of_queries - 1 - row_of(work, row).query, 0), 0);
  }
  /// Finds how many tokens each row sees.
  __device__ __forceinline__ void find_seen(decode_work_item const& work, std::int32_t length,
                                            typename columns_type::template row_values<std::int32_t>& tokens) const {
    outputs_type::each_row(
        cuda_warp{}, [&](int row, std::int32_t& of_row) { of_row = seen(work, row, length); }, tokens);
  }
  /// How many tokens every row of every work item sees: the first ones, which need no mask.
  [[nodiscard]] __device__ __forceinline__ std::int32_t seen_by_all(std::int32_t length) const {
    return is_causal ? max(length - static_cast<std::int32_t>(by_queries.divisor) + 1, 0) : length;
  }

  /// Loads the queries of the block's next work item, and what is known of its sequence; by the last eight lanes of a
  /// warp.
  template <class Ahead>
  __device__ __forceinline__ void load_ahead(Ahead& ahead, typename Ahead::count_type& items,
                                             decode_work_item const& work, std::int32_t length, std::int32_t steps,
                                             int lane) const {
    auto const at = ring_filler(items).begin_step(0);
    items.go_on(1);
    int const row = lane - (32 - decode_rows);
    int const row_count = min(decode_rows, rows - work.first_row);
    if (row < 0 || row >= row_count) {
      return;
    }
    row_coordinates const of = row_of(work, row);
    shared_barrier& full = at.when_empty(ahead.ring);
    if (row == 0) {
      ahead.length[at.stage] = length;
      ahead.steps[at.stage] = steps;
      full.arrive_and_expect(row_count * ahead.row_bytes);
    }
    load_bytes(ahead.queries[at.stage][row], &queries(work.sequence, of.head, of.query, 0), ahead.row_bytes, full);
  }
  /// The lane's query of a work item that is there, row lane / 4; null for a row that does not exist.
  template <class Ahead>
  [[nodiscard]] __device__ __forceinline__ T const* query_of(Ahead& ahead, pipeline_step const& at,
                                                             decode_work_item const& work, int lane) const {
    bool const is_inside = work.first_row + lane / 4 < rows;
    return is_inside ? reinterpret_cast<T const*>(ahead.queries[at.stage][lane / 4]) : nullptr;
  }
  /// Loads a query as second operands of products with keys.
  __device__ __forceinline__ static void load_query(T const* query, int lane, std::uint32_t (&words)[strips][2]) {
    auto const* const from = reinterpret_cast<std::uint32_t const*>(query) + lane % 4;
#pragma unroll
    for (int strip = 0; strip < strips; ++strip) {
      words[strip][0] = query != nullptr ? from[8 * strip] : 0U;
      words[strip][1] = query != nullptr ? from[8 * strip + 4] : 0U;
    }
  }

  /// Merges what the block's warps have, and writes results or, where keys are split, partial results. Columns are in
  /// their final units. `all` is memory for each warp, which others read until the next sync of the warps.
  template <class Splits>
  __device__ __forceinline__ void finish(decode_work_item const& work, columns_type& columns, Splits const& all,
                                         int warp, int lane) const {
    int const row_count = min(decode_rows, rows - work.first_row);
    split_type& own = all(warp);
    cuda_warp const group;
    typename columns_type::template row_values<float> sums;
    outputs_type::each_row(
        group, [](int, float& sum, decode_softmax::state_type const& state) { sum = state.sum; }, sums,
        columns.softmax);
    outputs_type::merge_lanes(group, sum_reducer<float>{}, sums);
    outputs_type::each_row_once(
        group,
        [&](int row, float sum, decode_softmax::state_type const& state) {
          own.reference[row] = state.reference;
          own.sum[row] = sum;
        },
        sums, columns.softmax);
    outputs_type::each_with_row(group, columns.outputs, [&](int row, int channel, float output) {
      if (row < row_count) {
        own.totals[row][channel] = output;
      }
    });
    worker_warps<Warps>::sync();
    constexpr int pairs = Channels / 2;
    for (int i = 32 * warp + lane; i < row_count * pairs; i += 32 * Warps) {
      join(work, all, i / pairs, i % pairs);
    }
  }

 private:
  /// Merges two channels of a row over all warps, and writes them.
  template <class Splits>
  __device__ __forceinline__ void join(decode_work_item const& work, Splits const& all, int number, int pair) const {
    auto const joined = merge_parts<Warps>(relative_reducer<2>{}, [&](int warp) {
      float2 const two = reinterpret_cast<float2 const*>(all(warp).totals[number])[pair];
      return relative_part<2>{{all(warp).reference[number], all(warp).sum[number]}, {two.x, two.y}};
    });
    float const sum = joined.state.sum;
    float const reference = sum == 0.0F ? -infinity : joined.state.reference;  // not no_reference
    write(work, row_of(work, number), pair, {{reference, reference, sum}, sum}, {joined.values[0], joined.values[1]});
  }
  __device__ __forceinline__ void write(decode_work_item const& work, row_coordinates const& of, int pair,
                                        row_type const& row, float2 total) const {
    if (partials.rows.data != nullptr) {
      float* const to = &partials.totals(work.split, work.sequence, of.head, of.query, 2 * pair);
      *reinterpret_cast<float2*>(to) = total;
      if (pair == 0) {
        partials.rows(work.split, work.sequence, of.head, of.query) = row;
      }
      return;
    }
    finished_row const finished = results.finish(work.sequence, of.head, of.query, row);
    bool const is_empty = finished.inverse == 0.0F;
    Result* const to = &results.out(work.sequence, of.head, of.query, 2 * pair);
    to[0] = store<Result>(is_empty ? 0.0F : total.x * finished.inverse);
    to[results.out.strides[3]] = store<Result>(is_empty ? 0.0F : total.y * finished.inverse);
    if (pair == 0) {
      results.write_log_sum_exp(work.sequence, of.head, of.query, finished);
    }
  }
};

}  // namespace v0
}  // namespace tessera
