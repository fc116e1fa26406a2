// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_decode`: attention of a few queries over many keys and values of 16 bits that are not quantized, bound by
/// memory bandwidth (sm_90).
///
/// The kernel is persistent and warp-specialised. A work item (program/attention/decode_schedule.cuh) has keys and
/// values in steps of a few tokens. One thread loads steps by TMA into the stages of a pipeline in shared memory, from
/// work item to work item without a pause. The other warps take the steps round-robin. Each keeps its own
/// decode_columns, so that warps wait for each other only at the end of a work item.
///
/// For each token and key head 4 * channels bytes are read: at 4.6 TB/s and 132 multiprocessors, 32 tokens of 128
/// channels every 820 cycles. They take 32 tensor core products with keys and 32 with values, and as many matrices are
/// read from shared memory: a fifth of what a multiprocessor can do. GPUs without TMA have
/// detail/dense_decode_by_warps.cuh.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/program/attention/decode_fragments.cuh>
#include <tessera/program/attention/decode_schedule.cuh>
#include <tessera/program/attention/detail/dense_decode_step.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tile/cuda/sm_90/worker_warps.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tuning/attention/decode.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Keys or values as rows of a matrix: token n of a sequence is in row n % block_tokens of a block.
struct dense_rows {
  tensor_map map;             ///< map of boxes of tokens x channels
  std::int32_t block_rows;    ///< rows from block to block
  std::int32_t head_rows;     ///< rows from head to head; 0 where heads lie side by side
  std::int32_t head_columns;  ///< columns from head to head; 0 where heads do not lie side by side
};

/// Attends over keys and values that are not quantized. T: the type of queries, keys and values.
template <int Channels, class T, class Result, dense_decode_policy Policy>
struct dense_decode {
  static constexpr int warps = Policy.warps;  ///< consumer warps; one more is the producer
  static constexpr int tokens = Policy.tokens;
  static constexpr int stages = Policy.stages;
  /// The consumer warps and the producer warp.
  using block_warps = worker_warps<warps>;
  static constexpr int lanes = block_warps::lanes;
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool is_persistent = true;
  static constexpr bool waits_for_stream = true;

  /// The warp that comes to a pipeline stage is the one that used it last, so that it knows the phase by its parity.
  static_assert(stages % warps == 0, "tessera: dense_decode has whole rounds of its warps in its ring");

  using schedule_type = decode_schedule<Channels, warps, T, Result>;
  using columns_type = typename schedule_type::columns_type;
  /// The layout of a stage in shared memory.
  using stage_layout = dense_stage<Channels, tokens>;
  /// What a warp does with a stage.
  using step_type = detail::dense_decode_step<Channels, tokens, T>;
  using ahead_type = decode_ahead<Channels, 2>;
  using pipeline_type = pipeline_state<stages>;

  struct scratch_type {
    /// The stages of keys.
    alignas(1024) unsigned char key[stages][stage_layout::bytes];
    /// The stages of values.
    alignas(1024) unsigned char value[stages][stage_layout::bytes];
    decode_split<Channels> splits[warps];  ///< partial results of warps, at the end of a work item
    ahead_type ahead;
    stage_ring<stages> ring;  ///< of tiles of keys and values
  };

  schedule_type schedule;
  dense_rows keys;    ///< the keys, as TMA loads them
  dense_rows values;  ///< the values, as TMA loads them
  sequence_lengths key_lengths;
  matrix_view<std::int32_t const> blocks;  ///< sequence x block of the sequence; null: a sequence is a block
  std::int32_t block_tokens;               ///< tokens of a block, a multiple of `tokens`
  float factor;                            ///< what scores are multiplied by: the softmax's scale and log2(e)

  /// Runs the thread block's work items. A launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    auto const own = block_warps::of(group);
    own.begin([&] { init_barriers(scratch); });
    if (own.warp < warps) {
      block_warps::wait_for_barriers();
      attend(scratch, own.warp, own.lane);
    } else {
      produce(scratch, own.lane);
    }
  }

 private:
  __device__ __forceinline__ void init_barriers(scratch_type& scratch) const {
    prefetch_tensor_map(keys.map);
    prefetch_tensor_map(values.map);
    scratch.ring.init(1, 1);
    scratch.ahead.init(warps);
    fence_barrier_init();
  }

  [[nodiscard]] __device__ __forceinline__ std::int32_t length(decode_work_item const& work) const {
    return static_cast<std::int32_t>(length_of(key_lengths, work.sequence, schedule.results.shape.keys));
  }

  /// Loads the operands of all work items, by the producer warp: one lane loads keys and values, others load queries.
  __device__ __forceinline__ void produce(scratch_type& scratch, int lane) const {
    pipeline_type pipeline;
    typename ahead_type::count_type items;
    for (std::uint32_t number = block_index(); number < schedule.count; number += blocks_in_grid()) {
      decode_work_item const work = schedule.at(number);
      std::int32_t const total = length(work);
      std::int32_t const steps = schedule.steps_of(work, divide_up(total, tokens));
      schedule.load_ahead(scratch.ahead, items, work, total, steps, lane);
      if (lane == 0) {
        for (auto const at : pipelined(ring_filler(pipeline), steps)) {
          load_stage(scratch, at, work, (work.split + at.index * schedule.splits()) * tokens);
        }
      }
      sync_warp();
    }
  }
  __device__ __forceinline__ void load_stage(scratch_type& scratch, fill_step<stages> const& at,
                                             decode_work_item const& work, std::int32_t first) const {
    std::int32_t block = work.sequence;
    std::int32_t row = first;
    if (blocks.data != nullptr) {
      std::int32_t const of_sequence = first / block_tokens;
      block = blocks(work.sequence, of_sequence);
      row = first - of_sequence * block_tokens;
    }
    shared_barrier& full = at.when_empty(scratch.ring);
    full.arrive_and_expect(2 * stage_layout::bytes);
    load(scratch.key[at.stage], keys, full, block, work.key_head, row);
    load(scratch.value[at.stage], values, full, block, work.key_head, row);
  }
  __device__ __forceinline__ static void load(unsigned char* to, dense_rows const& from, shared_barrier& full,
                                              std::int32_t block, std::int32_t head, std::int32_t row) {
    std::int32_t const first = block * from.block_rows + head * from.head_rows + row;
#pragma unroll
    for (int panel = 0; panel < stage_layout::panels; ++panel) {
      load_box(to + panel * stage_layout::panel_bytes, from.map, full,
               {head * from.head_columns + panel * stage_layout::panel_channels, first});
    }
  }

  __device__ __forceinline__ void attend(scratch_type& scratch, int warp, int lane) const {
    auto const splits = [&scratch](int which) -> decode_split<Channels>& { return scratch.splits[which]; };
    pipeline_type pipeline;
    pipeline.skip(warp);
    std::int32_t next = warp;  // number of the warp's next step in its work item
    typename ahead_type::count_type items;
    late_reader const ahead(items);
    for (std::uint32_t number = block_index(); number < schedule.count; number += blocks_in_grid()) {
      decode_work_item const work = schedule.at(number);
      std::uint32_t queries[schedule_type::strips][2];
      auto const item = ahead.begin_step(0);
      shared_barrier& is_read = item.when_full(scratch.ahead.ring);
      schedule.load_query(schedule.query_of(scratch.ahead, item, work, lane), lane, queries);
      std::int32_t const total = scratch.ahead.length[item.stage];
      std::int32_t const steps = scratch.ahead.steps[item.stage];
      typename step_type::seen_type seen;
      schedule.find_seen(work, total, seen);
      columns_type columns;
      columns.clear();
      for (pipeline_step const at : pipelined(ring_reader(scratch.ring, pipeline), {next, steps, warps})) {
        std::int32_t const first = (work.split + at.index * schedule.splits()) * tokens;
        step_type const step{first, min(tokens, total - first) - 1, seen};
        take(step, scratch, at.stage, columns, queries, first + tokens > schedule.seen_by_all(total), lane);
        block_warps::release(scratch.ring.empty[at.stage], lane);
        next = at.index + warps;
      }
      next -= steps;
      if (lane == 0) {
        is_read.arrive();
      }
      ahead.end_step(0, 1);
      schedule.finish(work, columns, splits, warp, lane);
      block_warps::sync();  // the next work item's partial results go to the same memory
    }
  }

  __device__ __forceinline__ void take(step_type const& step, scratch_type const& scratch, int stage,
                                       columns_type& columns, std::uint32_t const (&queries)[schedule_type::strips][2],
                                       bool is_masked, int lane) const {
    std::uint32_t const key_address = detail::plain_shared_address(scratch.key[stage]);
    std::uint32_t const value_address = detail::plain_shared_address(scratch.value[stage]);
    typename step_type::weights_type weights;
    step.weigh(key_address, columns, queries, factor, is_masked, lane, weights);
    step.add_values(value_address, columns, weights, lane);
  }
};

}  // namespace v0
}  // namespace tessera
