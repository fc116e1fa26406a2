// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_warpgroup_attention`: attention over queries, keys and values in bfloat16 or float16 by sm_90a's tensor
/// cores.
///
/// The kernel is persistent and warp-specialised. A work item is a block of queries of one head, or a split of its keys
/// (attention/detail/forward_splits.hpp). Two threads, the producers, load queries, keys and values by TMA
/// (attention/detail/dense_pipeline.cuh). Consumer warpgroups take 64 rows of queries each through all tiles of keys
/// that the block's rows see, from the last to the first. For each tile a warpgroup
///
///  * multiplies queries by keys: S, in fp32 registers;
///  * makes weights P of them (tile/rows/weigh_rows.hpp, and dense_softmax.cuh), packed in pairs, in registers
///    where the tensor cores take them as the left operand;
///  * multiplies P by values, which lie as the caller has them, and adds to O, in fp32 registers.
///
/// The scores of the next tile are begun before the products of P, so that both are behind each other in the tensor
/// cores while the warpgroup waits for the scores alone, and makes the next weights beside the products (as
/// FlashAttention-3 does, arXiv 2407.08608, section 3.2). The other warpgroup's products run beside that, too; policies
/// tell whether warpgroups start products in turns (section 3.1 there).
///
/// Cycles of a multiprocessor for a tile of a warpgroup without a mask, 64 rows x `keys` (4096 operations a cycle in
/// the tensor cores, 16 exponentials, an instruction of a warp on each of four schedulers):
///
///     channels   keys   tensor cores   exponentials   instructions
///     256         80    1280           320            538
///     128        160    1280           640            575
///      64        128     512           512            447
///
/// Of the 575 instructions 82 are exponentials, 84 maxima, 84 multiply-adds, 80 additions, 40 conversions, 64 scale O
/// (skipped where no largest score changes), 18 start multiplications, and the rest are their descriptors and barriers.
/// So with 128 channels and more tensor cores are the floor, if warpgroups overlap; with 64 exponentials are as slow.
///
/// Bytes: a block of 128 rows loads 512 bytes of a token's key and value of 128 channels, which is 32 bytes a cycle
/// from L2 at the tensor cores' full speed, of 64 that a multiprocessor can take. From shared memory a multiplication
/// for 64 x 160 scores reads 7 KiB in 80 cycles, and one of weights by 128 channels 4 KiB in 64 cycles, of 128 bytes a
/// cycle.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/program/attention/detail/dense_pipeline.cuh>
#include <tessera/program/attention/detail/dense_softmax.cuh>
#include <tessera/program/attention/detail/forward_output.cuh>
#include <tessera/program/attention/detail/key_limits.cuh>
#include <tessera/reduce/sum.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_rows.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_turns.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tile/rows/weigh_rows.hpp>
#include <tessera/tuning/attention/dense.hpp>

namespace tessera {
inline namespace v0 {

/// Writes results of whole work items, in 16 bits.
template <class Output>
struct dense_output {
  attention_output<Output> to;  ///< where rows go; values have neither scales nor means

  /// Writes a warp's rows. `sums`: as for attention_output::write_rows.
  template <int Most, int Registers>
  __device__ __forceinline__ void write_rows(float const (&sums)[Registers], finished_row const (&rows)[2],
                                             warp_rows of) const {
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
    auto const channels = static_cast<std::int32_t>(to.target.extents[3]);
    Output* const first[2] = {to.channels_of(of, of.row_of(0)), to.channels_of(of, of.row_of(1))};
#pragma unroll
    for (int channel = 0; channel < Most; channel += 32) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          int const at = channel / 2 + 4 * j + 2 * half;
          float const inverse = rows[half].inverse;
          std::uint32_t const both = pack_pair<Output>(sums[at] * inverse, sums[at + 1] * inverse);
          words[j] = inverse == 0.0F ? 0 : both;
        }
        to.exchange(words);
        if (first[half] != nullptr && channel + 8 * (lane % 4) < channels) {
          to.store(first[half] + channel, words);
        }
      }
    }
  }
};

/// Attends over operands of type T. Output: the type of results, bfloat16 or float16.
template <int Channels, class T, class Output, dense_attention_policy Policy>
struct dense_warpgroup_attention {
  using shape = dense_attention_shape<Channels, Policy>;
  using pipeline_type = dense_pipeline<Channels, Policy>;  ///< the loads of operands, and their shared memory
  using scratch_type = typename pipeline_type::scratch_type;
  static constexpr int lanes = shape::lanes;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  static constexpr bool waits_for_stream = true;

  pipeline_type pipeline;               ///< extents and maps of the operands
  float slope;                          ///< what scores are multiplied by to be in base 2
  dense_output<Output> output;          ///< where results of whole work items go
  attention_split_output split_output;  ///< where splits of the keys leave their results

  /// Runs the thread block's work items. A launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    pipeline.prepare(group, scratch);
    int const warpgroup = uniform(group.lane / shape::warpgroup);
    if (warpgroup == Policy.consumers) {
      lower_registers<Policy.producer_registers>();
      if (group.lane == shape::warpgroup * Policy.consumers) {
        pipeline.produce_keys(scratch);
      } else if (group.lane == shape::warpgroup * Policy.consumers + 32) {
        pipeline.produce_values(scratch);
      }
    } else {
      raise_registers<Policy.consumer_registers>();
      consume(scratch, warpgroup);
    }
    group.sync();
  }

 private:
  using score_mma = warpgroup_mma<T, Policy.keys>;
  using value_mma = warpgroup_mma<T, Channels, operand_order::along_depth, operand_order::across_depth>;
  using score_rows = warpgroup_rows<float, Policy.keys>;
  using output_rows = warpgroup_rows<float, Channels>;
  template <class Value>
  using row_values = typename score_rows::template row_values<Value>;
  static constexpr int lag = Policy.overlaps ? 1 : 0;  ///< tiles of which values are multiplied behind keys
  using tile_reader = pair_reader<Policy.stages, lag, release_for_warp>;
  using query_step = read_step<Policy.query_stages>;
  using turns = named_turns<Policy.consumers, 1>;  ///< of starting products; each comes after the warpgroup before

  /// The state of a consumer warpgroup, in registers.
  struct consumer_state {
    int warpgroup;                         ///< number of the warpgroup among the consumers
    pair_state<Policy.stages, lag> tiles;  ///< stages of keys, and of values
    matrix_descriptor queries;             ///< this warpgroup's rows
    matrix_descriptor keys;                ///< the first stage's keys
    matrix_descriptor values;              ///< the first stage's values
    std::int32_t low;                      ///< the first key that the warp's first row sees
    std::int32_t high;                     ///< one past the last key that the warp's first row sees
    std::int32_t end;                      ///< keys of the sequence
    row_values<float> factor;  ///< what outputs are multiplied by before the products of `weights` are added
    typename score_rows::sum_tile scores;
    operands_of_sums<score_rows, value_mma> weights;
    typename output_rows::sum_tile outputs;
    row_values<sloped_softmax::state_type> rows;
  };

  __device__ __forceinline__ void consume(scratch_type& scratch, int warpgroup) const {
    consumer_state state;
    state.warpgroup = warpgroup;
    state.keys = matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(scratch.key[0]));
    state.values = matrix_descriptor::with_strides(detail::plain_shared_address(scratch.value[0]),
                                                   shape::keys * shape::row_bytes, 1024);
    if constexpr (Policy.alternates) {
      turns::begin(warpgroup);
    }
    typename pipeline_type::query_count queries;
    for (auto const at : pipelined(late_reader(queries), received_by_warp(scratch.work, queries))) {
      attend(scratch, state, at);
    }
    if constexpr (Policy.alternates) {
      turns::end(warpgroup);
    }
  }

  /// Attends over a work item, which `at` has the number of.
  __device__ __forceinline__ void attend(scratch_type& scratch, consumer_state& state, query_step const& at) const {
    auto const split = pipeline.split_of(at.index);
    std::int32_t const row = split.row + state.warpgroup * shape::warpgroup_rows + row_of_warp();
    state.low = uniform(row + split.extents.band.first);
    state.high = uniform(row + split.extents.band.last + 1);
    state.end = uniform(split.extents.keys);
    auto const lane = warpgroup_lane::of_thread();
    score_rows::each_row(
        lane, [](int, sloped_softmax::state_type& row) { row = sloped_softmax::identity(); }, state.rows);
    output_rows::each_with_row(lane, state.outputs, [](int, int, float& output) { output = 0.0F; });
    shared_barrier& queries_are_read = at.when_full(scratch.query_ring);
    tile_range const tiles{uniform(split.tiles.begin), uniform(split.tiles.end), uniform(split.tiles.full_begin),
                           uniform(split.tiles.full_end)};
    if (tiles.count() > 0) {
      state.queries = matrix_descriptor::rows_of_128_bytes(
          uniform(detail::plain_shared_address(scratch.query[at.stage]) +
                  static_cast<std::uint32_t>(state.warpgroup * shape::warpgroup_rows * shape::row_bytes)));
      attend_tiles(scratch, state, tiles, queries_are_read);
    } else {
      queries_are_read.arrive_for_warp();
    }
    finish(state, at.index);
  }

  /// Attends from the last tile to the first, so that the masked tiles of causal attention come first. From the first
  /// full tile on no key is hidden because it lies before the keys that a row sees.
  __device__ __forceinline__ void attend_tiles(scratch_type& scratch, consumer_state& state, tile_range const& tiles,
                                               shared_barrier& queries_are_read) const {
    tile_reader const reads(scratch.key_ring, scratch.value_ring, state.tiles);
    steps_from_last left{tiles.begin, tiles.end};
    for (pipeline_step const at : pipelined(reads, left.take_from(tiles.end - lag))) {
      first_scores(state, reads, at);
    }
    for (pipeline_step const at : pipelined(reads, left.take_from(tiles.full_end))) {
      do_tile<tile_mask::behind>(state, reads, at);
    }
    for (pipeline_step const at : pipelined(reads, left.take_from(tiles.full_begin))) {
      do_tile<tile_mask::none>(state, reads, at);
    }
    for (pipeline_step const at : pipelined(reads, left)) {
      do_tile<tile_mask::both>(state, reads, at);
    }
    queries_are_read.arrive_for_warp();
    if constexpr (lag > 0) {
      start_products(state, reads.await_second());
      finish_products(state, reads);
    }
  }

  /// Makes the weights of the first of a work item's tiles.
  __device__ __forceinline__ void first_scores(consumer_state& state, tile_reader const& reads,
                                               pipeline_step at) const {
    start_scores(state, at.stage);
    await_multiply<0>(state.scores);
    reads.release_first();
    weigh<tile_mask::both>(state, at.index);
    state.weights.make(warpgroup_lane::of_thread(), state.scores);
  }

  template <tile_mask Mask>
  __device__ __forceinline__ void do_tile(consumer_state& state, tile_reader const& reads, pipeline_step at) const {
    if constexpr (Policy.alternates) {
      turns::take(state.warpgroup);
    }
    start_scores(state, at.stage);
    if constexpr (lag > 0) {
      start_products(state, reads.await_second());
    }
    if constexpr (Policy.alternates) {
      turns::pass(state.warpgroup);
    }
    await_multiply<lag>(state.scores);
    reads.release_first();
    weigh<Mask>(state, at.index);
    if constexpr (lag > 0) {
      finish_products(state, reads);
    }
    state.weights.make(warpgroup_lane::of_thread(), state.scores);
    scale_outputs(state);
    if constexpr (lag == 0) {
      start_products(state, reads.await_second());
      finish_products(state, reads);
    }
  }

  /// Makes weights of a tile's scores.
  template <tile_mask Mask>
  __device__ __forceinline__ void weigh(consumer_state& state, std::int32_t tile) const {
    if constexpr (Mask != tile_mask::none) {
      key_limits const limits =
          key_limits::of(warpgroup_lane::in_warp(thread_index()), state.low, state.high, state.end, tile * shape::keys);
      score_rows::hide_from(limits.lane, state.scores, -infinity, limits.end);
      if constexpr (Mask == tile_mask::both) {
        score_rows::hide_before_diagonal(limits.lane, state.scores, -infinity, limits.first);
      }
    }
    weigh_rows<score_rows>(warpgroup_lane::of_thread(), sloped_softmax{slope}, state.scores, state.rows, state.factor);
  }

  /// Starts the products of this warpgroup's queries with a tile of keys. With many channels their descriptors are made
  /// again for each tile: the compiler would keep 32 registers with them otherwise, and spill others.
  __device__ __forceinline__ static void start_scores(consumer_state& state, int stage) {
    matrix_descriptor const queries = Channels > 128 ? state.queries.kept() : state.queries;
    matrix_descriptor const keys = state.keys.further(stage * shape::tile_bytes);
    begin_multiply(state.scores);
#pragma unroll
    for (int step = 0; step < shape::depth_steps; ++step) {
      score_mma::multiply(state.scores, queries.further(shape::step_bytes(step, shape::rows)),
                          keys.further(shape::step_bytes(step, shape::keys)), step != 0);
    }
    commit_multiply();
  }
  /// Starts the products of the weights of a tile with its values.
  __device__ __forceinline__ static void start_products(consumer_state& state, int stage) {
    matrix_descriptor const values = state.values.further(stage * shape::tile_bytes);
    begin_multiply(state.outputs);
#pragma unroll
    for (int step = 0; step < shape::key_steps; ++step) {
      value_mma::multiply(state.outputs, state.weights.of_step[step], values.further(step * 16 * shape::row_bytes),
                          true);
    }
    commit_multiply();
  }
  __device__ __forceinline__ static void finish_products(consumer_state& state, tile_reader const& reads) {
    await_multiply<0>(state.outputs);
    reads.release_second();
  }
  /// Multiplies outputs by the factors of their rows, unless all of the warp are 1, as they are for most tiles after
  /// the first few: none of their scores exceeds all before.
  __device__ __forceinline__ static void scale_outputs(consumer_state& state) {
    auto const lane = warpgroup_lane::of_thread();
    bool differs = false;
    output_rows::each_row(
        lane, [&](int, float factor) { differs = differs || factor != 1.0F; }, state.factor);
    if (any_of_warp(differs)) {
      output_rows::each_with_row(
          lane, state.outputs, [](int, int, float& output, float factor) { output *= factor; }, state.factor);
    }
  }

  /// Writes the rows of a work item, which is looked up again: registers are scarce while tiles are multiplied.
  __device__ __forceinline__ void finish(consumer_state& state, std::int32_t index) const {
    std::int32_t again[1] = {index};
    pin_registers(again);
    auto const split = pipeline.split_of(again[0]);
    std::int32_t const row = state.warpgroup * shape::warpgroup_rows + row_of_warp();
    warp_rows const of{split.sequence, split.head, 0, split.row + row, split.extents.queries};
    auto const lane = warpgroup_lane::of_thread();
    row_values<float> totals;
    row_values<weighted_row> all_rows;
    score_rows::each_row(
        lane, [](int, float& total, sloped_softmax::state_type const& row) { total = row.total; }, totals, state.rows);
    score_rows::merge_lanes(lane, sum_reducer<float>{}, totals);
    score_rows::each_row(
        lane,
        [&](int, weighted_row& to, float total, sloped_softmax::state_type const& row) {
          to = {total, row.reference * slope};
        },
        all_rows, totals, state.rows);
    weighted_row const(&rows)[2] = all_rows.values[0];
    if (split.slot >= 0) {
      split_output.template write_rows<Channels>(state.outputs, rows, split.slot, row);
      return;
    }
    finished_row const finished[2] = {output.to.finish(rows[0], of, 0), output.to.finish(rows[1], of, 1)};
    output.template write_rows<Channels>(state.outputs, finished, of);
    output.to.write_log_sum_exps(finished, of);
  }

  /// The first row of a warp among its warpgroup's rows.
  __device__ __forceinline__ static std::int32_t row_of_warp() {
    return static_cast<std::int32_t>(thread_index() / 32 % 4 * 16);
  }
};

}  // namespace v0
}  // namespace tessera
