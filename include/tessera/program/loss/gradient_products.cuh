// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_gradient_products`: multiplies a part of the logits' gradient G into the gradients of hidden states (G C) and
/// of the classifier (G^T E), both in one persistent kernel for sm_90a. It is the second half of linear_loss's backward
/// pass, after gemm_pingpong has made G.
///
/// Clusters of two thread blocks compute tiles of 256 x 192 sums, one after the other: those of the
/// classifier, summed over the tokens, and those of hidden states, summed over the entries of the part. As in
/// gemm_pingpong (ping-pong) each of a block's two consumer warpgroups has tiles of its own, 128 x 192 sums in its
/// registers, and one multiplies while the other writes. TMA loads all operands as boxes of 64 columns: G as its rows
/// lie, or across, and rows of C and E across the depth. Both blocks need the rows of C and E, and each loads every
/// other half of a box for both. Only blocks of G that the lists name (block_lists.hpp) are multiplied.
///
/// Or tiles have 256 x 256 sums, where a policy says so: each warpgroup has 64 x 256 of a block's 128 x 256, and both
/// multiply the same stages (as in gemm_cooperative). Rows of the classifier are rounded to 16 bits at a tile's end,
/// and written while the next tile is multiplied; those of hidden states are written while tensor cores wait. So it is
/// for long sums.
///
/// Sums are fp32. Rows of the classifier's gradient are written once, or added once to what they hold. Gradients of
/// hidden states are added up in fp32 from part to part: where they are stored in 16 bits, the upper half of the fp32
/// bits stays in the result and the lower half in the workspace, until the last part rounds them. See
/// detail/gradient_rows.cuh.
///
/// Cost: 4 * 128 * 128 * channels operations for each kept block of G. A thread block loads 28 KiB through L2 for 3.1e6
/// of them, and 32 KiB for 4.2e6 with 256 channels.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/program/gemm/gemm_pipeline.cuh>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/detail/deferred_rows.cuh>
#include <tessera/program/loss/detail/gradient_rows.cuh>
#include <tessera/program/loss/detail/product_stages.cuh>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/cluster.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_turns.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

/// IsShort: whether gradients are fp32, whose parts may have little memory and so short sums. Then the program gets
/// ready while the stream's last one ends, and its epilogues are short loops (sum_lines.cuh).
template <class T, class Gradient, warpgroup_gemm_policy Policy, bool IsShort = false>
struct loss_gradient_products {
  static_assert(Policy.blocks == 2 && (Policy.columns == 192 || Policy.columns == 256),
                "tessera: this program computes 256 x 192 or 256 x 256 in clusters of 2");
  /// Whether both warpgroups multiply a tile together, else in turns.
  static constexpr bool is_together = Policy.columns == 256;
  static_assert(!is_together || sizeof(Gradient) == 2, "tessera: rows that are written later have 16 bits");
  static_assert(!IsShort || std::is_same_v<Gradient, float>, "tessera: lines are in fp32");
  using shape = warpgroup_gemm_shape;
  static constexpr int lanes = shape::warpgroup * (1 + shape::consumers);
  static constexpr int blocks_per_cluster = 2;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  /// `true` makes the loss over 256000 x 2304 that differentiate_softmaxes was measured with 1.8 % slower.
  static constexpr bool starts_early = IsShort;
  static constexpr bool waits_for_stream = IsShort;
  /// How stages are loaded and multiplied.
  using product = loss_product_stages<T, Policy.columns>;
  static constexpr int box = product::box;                     ///< columns of all boxes, and rows of boxes of G
  static constexpr int shared_rows = product::shared_rows;     ///< rows of a box that is loaded for both blocks
  static constexpr int rows = product::rows;                   ///< rows of a cluster's tile
  static constexpr int channels = product::channels;           ///< channels of a tile
  static constexpr int halves = product::halves;               ///< halves of a block's tile
  static constexpr int own_halves = is_together ? 1 : halves;  ///< those of a warpgroup

  struct scratch_type {
    /// Boxes of G.
    alignas(1024) unsigned char a[Policy.stages][product::a_bytes];
    /// Boxes of the other operand, C or E.
    alignas(1024) unsigned char b[Policy.stages][product::b_bytes];
    sum_staging of_warp[shape::consumers][4];  ///< shared memory through which sums are written
    stage_ring<Policy.stages> ring;            ///< of k-tiles
    warpgroup_turns<shape::consumers> turns;   ///< one begins when all stages of the other warpgroup's tile are loaded
  };

  tensor_map gradient;    ///< tokens x entries of the part
  tensor_map hidden;      ///< tokens x channels
  tensor_map classifier;  ///< entries of the part x channels, where entries are in their own order
  tensor_map gathered;    ///< entries of the part x channels, where entries are in another order
  loss_product_schedule schedule;
  loss_part_range range;
  write_classifier_rows<Gradient> to_classifier;  ///< where sums of the classifier go
  add_hidden_rows<Gradient, true> to_hidden;      ///< where sums of hidden states go
  array_view<loss_token_factors const> tokens;

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    if constexpr (!IsShort) {
      if (range.is_beyond()) {
        return;
      }
    }
    if (group.lane == 0) {
      prepare(scratch);
    }
    sync_cluster();
    if constexpr (IsShort) {
      let_next_kernel_start();
      wait_for_stream();
      if (range.is_beyond()) {
        return;
      }
    }
    auto const worker = static_cast<std::int32_t>(block / 2);
    int const warpgroup = uniform(group.lane / shape::warpgroup);
    if (warpgroup == 0) {
      lower_registers<Policy.producer_registers>();
      if (group.lane == 0) {
        produce(scratch, worker);
      }
    } else {
      raise_registers<Policy.consumer_registers>();
      if constexpr (is_together) {
        consume_together(scratch, worker, warpgroup - 1, group.lane % shape::warpgroup);
      } else {
        consume(scratch, worker, warpgroup - 1, group.lane % shape::warpgroup);
      }
    }
    sync_warp();
    sync_cluster();  // no block ends while the other still writes to its shared memory
  }

 private:
  using state_type = pipeline_state<Policy.stages>;
  using sums_type = typename product::template sums_of<own_halves>;
  static constexpr operand_order along = product::along;
  static constexpr operand_order across = product::across;

  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(gradient);
    prefetch_tensor_map(hidden);
    prefetch_tensor_map(classifier);
    scratch.ring.init(1, 2 * 4 * (is_together ? shape::consumers : 1));  // warps that read a stage, in both blocks
    scratch.turns.init();
    fence_barrier_init();
  }

  __device__ __forceinline__ loss_product_item item_at(std::int32_t turn, std::int32_t worker) const {
    return schedule.at(turn, worker, static_cast<std::int32_t>(blocks_in_grid()) / 2);
  }
  /// How many work items each worker takes; the last one may not exist.
  __device__ __forceinline__ std::int32_t turns() const {
    return schedule.turns(static_cast<std::int32_t>(blocks_in_grid()) / 2);
  }
  __device__ __forceinline__ std::int32_t k_tiles_at(std::int32_t turn, std::int32_t worker) const {
    return turn < turns() ? 2 * item_at(turn, worker).count : 0;
  }

  __device__ __forceinline__ void produce(scratch_type& scratch, std::int32_t worker) const {
    auto const own = static_cast<std::int32_t>(rank_in_cluster());
    std::int32_t const count = turns();
    tensor_map const& entries = range.is_in_order() ? classifier : gathered;
    state_type state;
    for (std::int32_t turn = 0; turn < count; ++turn) {
      loss_product_item const item = item_at(turn, worker);
      if (item.is_hidden) {
        load_stages<true>(scratch, item, entries, own, state);
      } else {
        load_stages<false>(scratch, item, hidden, own, state);
      }
    }
  }

  /// Loads the stages of a work item. Compiled for each kind of product, since the producer has few registers.
  template <bool IsHidden>
  __device__ __forceinline__ void load_stages(scratch_type& scratch, loss_product_item const& item, tensor_map const& b,
                                              std::int32_t own, state_type& state) const {
    std::int32_t const first = item.panel * rows + own * halves * box;
    std::int32_t const channel = item.channel_tile * channels;
    for (auto const at : pipelined(ring_filler(state), 2 * item.count)) {  // 64 tokens, or 64 entries, from k on
      std::int32_t const k = (loss_list_entry::block(item.list[at.index / 2]) * 2 + at.index % 2) * box;
      shared_barrier& full = at.when_empty(scratch.ring);
      product::template load<IsHidden>(scratch.a[at.stage], scratch.b[at.stage], gradient, b, full,
                                       {first, channel, k, k, own});
    }
  }

  __device__ __forceinline__ void consume(scratch_type& scratch, std::int32_t worker, int consumer, int lane) const {
    auto const own = static_cast<std::int32_t>(rank_in_cluster());
    int const warp = uniform(lane / 32);
    std::int32_t const count = turns();
    state_type state;
    sums_type sums;
    if (consumer == 1) {
      state.skip(k_tiles_at(0, worker));
    }
    for (std::int32_t turn = consumer; turn < count; turn += 2) {
      loss_product_item const item = same_for_warp(item_at(turn, worker));
      scratch.turns.take(consumer, turn / 2);
      state.agree();
      if (item.count == 0) {
        scratch.turns.pass(consumer);
        clear(sums);
      } else if (item.is_hidden) {
        multiply_tile<along>(scratch, item, consumer, state, sums);
      } else {
        multiply_tile<across>(scratch, item, consumer, state, sums);
      }
      state.skip(k_tiles_at(turn + 1, worker));
      if (item.panel >= 0) {
        write(item, sums, own * halves * box + warp * 16, scratch.of_warp[consumer][warp]);
      }
    }
  }

  /// The same where both warpgroups have a half of each tile.
  __device__ __forceinline__ void consume_together(scratch_type& scratch, std::int32_t worker, int consumer,
                                                   int lane) const {
    auto const own = static_cast<std::int32_t>(rank_in_cluster());
    int const warp = uniform(lane / 32);
    std::int32_t const first_row = (own * halves + consumer) * box + warp * 16;
    std::int32_t const count = turns();
    state_type state;
    sums_type sums;
    detail::deferred_classifier_rows<Gradient, channels / 2> rows_left;
    auto const write_left = [&](auto half) { rows_left.template run<decltype(half)::value>(to_classifier, range); };
    for (std::int32_t turn = 0; turn < count; ++turn) {
      loss_product_item const item = same_for_warp(item_at(turn, worker));
      if (item.count == 0) {
        write_left(std::integral_constant<int, 0>{});
        write_left(std::integral_constant<int, 1>{});
        clear(sums);
      } else if (item.is_hidden) {
        multiply_tile<along>(scratch, item, consumer, state, sums, write_left);
      } else {
        multiply_tile<across>(scratch, item, consumer, state, sums, write_left);
      }
      if (item.panel < 0) {
        continue;
      }
      if (item.is_hidden) {
        write(item, sums, first_row, scratch.of_warp[consumer][warp]);
      } else if (item.panel * rows < range.width()) {
        rows_left.take(to_classifier, sums[0], item.panel * rows + first_row, item.channel_tile * channels);
      }
    }
    write_left(std::integral_constant<int, 0>{});
    write_left(std::integral_constant<int, 1>{});
  }

  /// Writes a warp's sums. `first_row`: the warp's first row in the tile.
  __device__ __forceinline__ void write(loss_product_item const& item, sums_type& sums, std::int32_t first_row,
                                        sum_staging& staging) const {
    if constexpr (IsShort) {
      write_halves(item, sums, first_row, staging);
      return;
    }
    std::int32_t const channel = item.channel_tile * channels;
    std::int32_t const row = item.panel * rows + first_row;
    if (!is_together && !item.is_hidden) {
      if (item.panel * rows < range.width() && (item.count > 0 || to_classifier.takes_nothing())) {
#pragma unroll
        for (int half = 0; half < own_halves; ++half) {
          to_classifier(range, sums[half], row + half * box, channel, staging);
        }
      }
    } else if (item.count > 0 || to_hidden.takes_nothing(range)) {
#pragma unroll
      for (int half = 0; half < own_halves; ++half) {
        to_hidden(range, tokens, sums[half], row + half * box, channel, staging);
      }
    }
  }

  /// Does the same with code for one half alone, which both have one after the other in the registers of the first.
  __device__ __forceinline__ void write_halves(loss_product_item const& item, sums_type& sums, std::int32_t first_row,
                                               sum_staging& staging) const {
    std::int32_t const channel = item.channel_tile * channels;
    std::int32_t row = item.panel * rows + first_row;
#pragma unroll 1
    for (int half = 0; half < halves; ++half, row += box) {
      if (!item.is_hidden) {
        if (item.panel * rows < range.width() && (item.count > 0 || to_classifier.takes_nothing())) {
          to_classifier.in_lines(range, sums[0], row, channel, staging);
        }
      } else if (item.count > 0 || to_hidden.takes_nothing(range)) {
        to_hidden.in_lines(range, tokens, sums[0], row, channel, staging);
      }
#pragma unroll
      for (int i = 0; i < channels / 2; ++i) {
        sums[0][i] = sums[1][i];
      }
    }
  }

  /// The work item, marked as the same in all lanes of a warp: unless the compiler knows that, it lets multiplications
  /// wait for each other.
  __device__ __forceinline__ static loss_product_item same_for_warp(loss_product_item item) {
    item.is_hidden = uniform(item.is_hidden ? 1 : 0) != 0;
    item.panel = uniform(item.panel);
    item.count = uniform(item.count);
    item.is_unclean = uniform(item.is_unclean ? 1 : 0) != 0;
    return item;
  }

  /// Multiplies the stages of a tile. Order: how G's elements lie, as seen from the depth. One stage is multiplied
  /// while the next is awaited, and a stage is released when the next one's multiplications have begun. When the last
  /// stage is loaded it is the other warpgroup's turn. `late...`: what is written behind each of the first two stages.
  template <operand_order Order, class... Late>
  __device__ __forceinline__ void multiply_tile(scratch_type& scratch, loss_product_item const& item, int consumer,
                                                state_type& state, sums_type& sums, Late const&... late) const {
    std::int32_t const k_tiles = 2 * item.count;
    product::pin(sums);
    product_reader reads(scratch.ring, state, release_to_cluster<2>{});
    auto const multiply = [&](pipeline_step const& at, bool adds) {
      clear_unlabelled<Order>(scratch, item, at);
      multiply_stage<Order>(scratch, consumer, at, sums, adds);
    };
    if constexpr (is_together) {
      for (pipeline_step const at : pipelined(reads, {0, 1})) {
        multiply(at, false);
      }
      (late(std::integral_constant<int, 0>{}), ...);
      for (pipeline_step const at : pipelined(reads, {1, 2})) {
        multiply(at, true);
      }
      (late(std::integral_constant<int, 1>{}), ...);
      for (pipeline_step const at : pipelined(reads, {2, k_tiles})) {
        multiply(at, true);
      }
    } else {
      multiply_in_turn(reads, scratch.turns, consumer, k_tiles, multiply);
    }
    reads.finish(sums);
  }
  template <operand_order Order>
  __device__ __forceinline__ static void multiply_stage(scratch_type& scratch, int consumer, pipeline_step at,
                                                        sums_type& sums, bool add) {
    product::template multiply<Order>(scratch.a, scratch.b, at.stage, sums, add, is_together ? consumer : 0);
  }

  /// Clears rows of a loaded stage that belong to tokens without a label, if it may have such.
  template <operand_order Order>
  __device__ __forceinline__ void clear_unlabelled(scratch_type& scratch, loss_product_item const& item,
                                                   pipeline_step at) const {
    if (Order == across && item.is_unclean) {
      std::int32_t const entry = schedule.lists[schedule.first_of(false, item.panel) + at.index / 2];
      if (loss_list_entry::is_unclean(entry)) {
        product::clear_unlabelled(scratch.b[at.stage], loss_list_entry::block(entry) * 2 + at.index % 2, tokens);
      }
    }
  }

  __device__ __forceinline__ static void clear(sums_type& sums) {
#pragma unroll
    for (int i = 0; i < own_halves * channels / 2; ++i) {
      sums[i / (channels / 2)][i % (channels / 2)] = 0.0F;
    }
  }
};

}  // namespace v0
}  // namespace tessera
