// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_decode_by_warps`: attention of a few queries over many keys and values of 16 bits that are not quantized,
/// bound by memory bandwidth, without TMA (sm_80 and later). It is dense_decode (program/attention/decode_dense.cuh)
/// but for the way in which keys and values get to shared memory.
///
/// Warps take the steps of a work item (program/attention/decode_schedule.cuh) round-robin. Each copies its own steps
/// by cp.async to its own part of shared memory, and keeps its own decode_columns, so that warps wait for each other
/// only at the end of a work item. When a warp has read the keys of a step, it begins to copy those of the step that
/// comes into their place, and then values likewise, from work item to work item without a pause. Keys and values of
/// a step are a batch of copies each, so that 2 * own_stages - 1 batches come after the one that is awaited. One stage
/// for a warp is enough: its keys are on their way while it multiplies values, and while other warps work.
///
/// For each token and key head 4 * channels bytes are read. A step of 32 tokens of 128 channels is 16 KiB: 32 copies of
/// a lane, 32 products with keys and 32 with values, and as many matrices from shared memory, in about 400
/// instructions; at 4.6 TB/s and 132 multiprocessors there is one step every 820 cycles, in which four schedulers issue
/// 3300. A block of 4 warps has 64 KiB of keys and values, of which at least half are on their way: with two blocks 64
/// KiB of a multiprocessor, while 35 KiB hide a microsecond. What was measured is in tuning/attention/decode.hpp.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/program/attention/decode_dense.hpp>
#include <tessera/program/attention/decode_fragments.cuh>
#include <tessera/program/attention/decode_schedule.cuh>
#include <tessera/program/attention/detail/dense_decode_step.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_80/refilled_ring.cuh>
#include <tessera/tile/cuda/sm_90/worker_warps.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/attention/decode.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Attends over keys and values that are not quantized, in rows that begin at multiples of 16 bytes. T: the type of
/// queries, keys and values.
template <int Channels, class T, class Result, dense_decode_policy Policy>
struct dense_decode_by_warps {
  static constexpr int warps = Policy.warps;
  static constexpr int tokens = Policy.tokens;
  static constexpr int stages = Policy.stages;
  static constexpr int own_stages = stages / warps;  ///< stages of a warp
  static constexpr int lanes = 32 * warps;
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr int from_architecture = 800;
  static constexpr int before_architecture = 10000;
  static constexpr bool is_persistent = true;

  static_assert(stages % warps == 0, "tessera: warps of dense_decode_by_warps have the same number of stages");

  using schedule_type = decode_schedule<Channels, warps, T, Result>;
  using columns_type = typename schedule_type::columns_type;
  /// What a warp does with a stage.
  using step_type = dense_decode_step<Channels, tokens, T>;
  using stage_layout = typename step_type::stage_layout;

  struct scratch_type {
    /// The stages of keys, those of a warp one behind the other.
    alignas(128) unsigned char key[stages][stage_layout::bytes];
    /// The stages of values.
    alignas(128) unsigned char value[stages][stage_layout::bytes];
    decode_split<Channels> splits[warps];  ///< partial results of warps, at the end of a work item
  };

  schedule_type schedule;
  decode_source<T> source;  ///< keys and values, where their blocks are, and lengths
  fast_divisor by_block;    ///< divides by the tokens of a block, a multiple of `tokens`
  float factor;             ///< what scores are multiplied by: the softmax's scale and log2(e)

  /// Runs the thread block's work items. A launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    auto const lane = static_cast<unsigned>(group.lane);  // without a sign, which divisions would count with
    attend(scratch, uniform(static_cast<int>(lane / 32U)), static_cast<int>(lane % 32U));
  }

 private:
  /// Where a warp's copies are: the next of its steps.
  struct cursor {
    std::uint32_t number;   ///< the next work item
    decode_work_item work;  ///< the one before
    std::int32_t next;      ///< number of the step in that work item
    std::int32_t steps;     ///< steps of that work item
    std::int32_t total;     ///< tokens of its sequence
  };

  [[nodiscard]] __device__ __forceinline__ std::int32_t length(decode_work_item const& work) const {
    return static_cast<std::int32_t>(length_of(source.lengths, work.sequence, schedule.results.shape.keys));
  }

  /// Goes on to a work item that has the warp's next step. Whether there is one.
  __device__ __forceinline__ bool find(cursor& at) const {
    while (at.next >= at.steps) {
      if (at.number >= schedule.count) {
        return false;
      }
      at.next -= at.steps;
      at.work = schedule.at(at.number);
      at.total = length(at.work);
      at.steps = schedule.steps_of(at.work, divide_up(at.total, tokens));
      at.number += blocks_in_grid();
    }
    return true;
  }
  /// Begins to copy the keys, or the values, of the step at `at` to a stage.
  __device__ __forceinline__ void copy(cursor const& at, head_view<T const> const& from, unsigned char* to,
                                       int lane) const {
    constexpr int row_chunks = Channels / 8;  // chunks of 16 bytes
    constexpr int rows = 32 / row_chunks;     // that lanes copy at a time
    std::int32_t const first = (at.work.split + at.next * schedule.splits()) * tokens;
    std::int64_t block = at.work.sequence;
    std::int32_t token = first;
    if (source.blocks.data != nullptr) {
      std::uint32_t const of_sequence = by_block.quotient(static_cast<std::uint32_t>(first));
      block = source.blocks(at.work.sequence, of_sequence);
      token -= static_cast<std::int32_t>(of_sequence * by_block.divisor);
    }
    int const row = lane / row_chunks;
    int const chunk = lane % row_chunks;
    T const* const rows_from = &from(block, at.work.key_head, token + row, 8 * chunk);
    unsigned char* const rows_to = to + chunk / 8 * stage_layout::panel_bytes + row * 128;
#pragma unroll
    for (int i = 0; i < tokens; i += rows) {
      async_copy_16_or_zero(rows_to + i * 128 + ((chunk % 8) ^ row ^ (i % 8)) * 16, rows_from + i * from.strides[2],
                            first + row + i < at.total);
    }
  }
  /// Begins to copy the keys of the next step.
  __device__ __forceinline__ void copy_keys(cursor& at, unsigned char* to, int lane) const {
    if (find(at)) {
      copy(at, source.keys, to, lane);
    }
  }
  /// Begins to copy the values of the step whose keys are being copied, and goes on to the next one.
  __device__ __forceinline__ void copy_values(cursor& at, unsigned char* to, int lane) const {
    if (at.next < at.steps) {
      copy(at, source.values, to, lane);
      at.next += warps;
    }
  }

  __device__ __forceinline__ void attend(scratch_type& scratch, int warp, int lane) const {
    auto const splits = [&scratch](int which) -> decode_split<Channels>& { return scratch.splits[which]; };
    cursor ahead{block_index(), {}, warp, 0, 0};
    cuda_warp const own;
    int key_stage = 0;
    int value_stage = 0;
    auto const copies_of_keys = [&](int stage) { copy_keys(ahead, scratch.key[own_stages * warp + stage], lane); };
    auto const copies_of_values = [&](int stage) {
      copy_values(ahead, scratch.value[own_stages * warp + stage], lane);
    };
    ring_refiller<own_stages, cuda_warp, decltype(copies_of_keys), 2> const keys(own, key_stage, copies_of_keys);
    ring_refiller<own_stages, cuda_warp, decltype(copies_of_values), 2> const values(own, value_stage,
                                                                                     copies_of_values);
    for (int stage = 0; stage < own_stages; ++stage) {
      keys.fill(stage);
      values.fill(stage);
    }
    std::int32_t next = warp;  // number of the warp's next step in its work item
    for (std::uint32_t number = block_index(); number < schedule.count; number += blocks_in_grid()) {
      decode_work_item const work = schedule.at(number);
      std::uint32_t queries[schedule_type::strips][2];
      schedule.load_query(query_of(work, lane), lane, queries);
      std::int32_t const total = length(work);
      std::int32_t const steps = schedule.steps_of(work, divide_up(total, tokens));
      typename step_type::seen_type seen;
      schedule.find_seen(work, total, seen);
      columns_type columns;
      columns.clear();
      for (; next < steps; next += warps) {
        std::int32_t const first = (work.split + next * schedule.splits()) * tokens;
        step_type const step{first, min(tokens, total - first) - 1, seen};
        typename step_type::weights_type weights;
        int const of_keys = own_stages * warp + keys.begin_step(next).stage;
        step.weigh(plain_shared_address(scratch.key[of_keys]), columns, queries, factor,
                   first + tokens > schedule.seen_by_all(total), lane, weights);
        keys.end_step();
        int const of_values = own_stages * warp + values.begin_step(next).stage;
        step.add_values(plain_shared_address(scratch.value[of_values]), columns, weights, lane);
        values.end_step();
      }
      next -= steps;
      schedule.finish(work, columns, splits, warp, lane);
      worker_warps<warps>::sync();  // the next work item's partial results go to the same memory
    }
  }
  /// The query that the lane's row lane / 4 is; null for a row that does not exist.
  [[nodiscard]] __device__ __forceinline__ T const* query_of(decode_work_item const& work, int lane) const {
    int const row = lane / 4;
    auto const of = schedule.row_of(work, row);
    return work.first_row + row < schedule.rows ? &schedule.queries(work.sequence, of.head, of.query, 0) : nullptr;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
