// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_gradient_parts`: both halves of the backward pass for all parts of the vocabulary in one persistent kernel for
/// sm_90a, where memory is short and parts are small: it makes the gradient by the logits, G, part after part in the
/// same memory, and multiplies each into the gradients of hidden states (G C) and of the classifier (G^T E), in fp32.
///
/// The stages, tiles and sums are those of gemm_pingpong and of loss_gradient_products, whose launches it replaces:
/// between these clusters are idle. Here a cluster takes the next tile of a list (part_items.hpp) when the stages of
/// its last one are being loaded. What a tile needs, or overwrites, it awaits by counters in memory: G before it is
/// loaded, and the products of the part before, in the epilogue, before G is written. So both are awaited while another
/// tile is multiplied. Whoever takes a tile waits only for tiles that were taken before, so that some cluster always
/// goes on, however many run at a time.
///
/// Sums of hidden states are added in memory from part to part: a tile waits for its row of G, which has waited for the
/// products of the part before in that row. So results have the same bits in each call.
#pragma once

#include <cstdint>

#include <tessera/program/gemm/gemm_pipeline.cuh>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/detail/gradient_rows.cuh>
#include <tessera/program/loss/detail/part_items.hpp>
#include <tessera/program/loss/detail/product_stages.cuh>
#include <tessera/program/loss/logit_gradient.cuh>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/cluster.cuh>
#include <tessera/tile/cuda/sm_90/device_counter.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_turns.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/gemm/linear.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// How write_loss_gradient writes boxes of all parts to the memory of one: columns are entries of the vocabulary, and
/// those of a tile that belong to the next part are left out. Nothing is marked, since nothing is left out of products.
template <class T>
struct loss_gradient_boxes_of_parts : loss_gradient_boxes<T> {
  static constexpr bool marks_nothing = true;  ///< see write_loss_gradient
  /// A box, which also stages sums of products: boxes of a tile are written one after the other.
  struct scratch_type {
    alignas(1024) unsigned char box[16 * 128];  ///< 16 rows of 128 bytes
  };
  std::int32_t entries;  ///< of a part

  /// Waits until the box may be overwritten, and returns its address in shared memory.
  __device__ __forceinline__ static std::uint32_t open_box(scratch_type& scratch, int) {
    if (thread_index() % 32 == 0) {
      await_box_reads<0>();
    }
    sync_warp();
    return detail::plain_shared_address(scratch.box);
  }
  /// Starts to store the box that the lanes have written, if it belongs to the tile's part.
  __device__ __forceinline__ void close_box(scratch_type const& scratch, int box, box_coordinate coordinate,
                                            cache_policy policy) const {
    fence_async_proxy();
    sync_warp();
    if (thread_index() % 32 == 0) {
      std::int32_t const in_part = coordinate.column % entries + 64 * box;
      if (in_part < entries && coordinate.column + 64 * box < this->columns && coordinate.row < this->rows) {
        store_box(this->target, scratch.box, {in_part, coordinate.row}, policy);
      }
      commit_box_stores();
    }
  }
};

/// Epilogue: a write_loss_gradient by loss_gradient_boxes_of_parts, whose range is the whole vocabulary as one part.
template <class Operand, class Epilogue, warpgroup_gemm_policy Policy>
struct loss_gradient_parts {
  static_assert(Policy.blocks == 2 && Policy.columns == loss_part_schedule::columns,
                "tessera: this program computes 256 x 192 in clusters of 2");
  using shape = warpgroup_gemm_shape;
  /// How stages of products are loaded and multiplied.
  using product = loss_product_stages<Operand, Policy.columns>;
  using stages_type = gemm_stages<Operand, Policy>;
  static_assert(stages_type::a_bytes == product::a_bytes && stages_type::b_bytes == product::b_bytes);
  static constexpr int lanes = stages_type::lanes;
  static constexpr int blocks_per_cluster = Policy.blocks;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  static constexpr int b_box_rows = stages_type::b_box_rows;  ///< of the map by which rows make logits
  static constexpr int items_ahead = 4;                       ///< work items that are on their way to consumers

  struct scratch_type {
    alignas(1024) unsigned char a[Policy.stages][product::a_bytes];
    alignas(1024) unsigned char b[Policy.stages][product::b_bytes];
    /// Shared memory through which each warp's sums are written.
    typename Epilogue::scratch_type of_warp[shape::consumers][4];
    loss_part_item items[items_ahead];        ///< what the first block's producer has sent
    stage_ring<Policy.stages> ring;           ///< of k-tiles
    stage_ring<items_ahead> ring_of_items;    ///< of items; `empty` is that of the cluster's first block alone
    warpgroup_turns<shape::consumers> turns;  ///< one begins when all stages of the other warpgroup's tile are loaded
  };

  tensor_map hidden_rows;                      ///< tokens x channels, by which logits are made
  tensor_map classifier_rows;                  ///< vocabulary x channels, for the same
  tensor_map gradient;                         ///< tokens x entries of a part
  tensor_map last_gradient;                    ///< tokens x entries of the last part, beyond which boxes are zeros
  tensor_map hidden;                           ///< tokens x channels, for products
  tensor_map classifier;                       ///< vocabulary x channels, for products
  loss_part_schedule schedule;                 ///< the tiles
  loss_part_counters counters;                 ///< how many of them are done
  Epilogue epilogue;                           ///< what makes logits gradients, and stores these
  write_classifier_rows<float> to_classifier;  ///< where sums of the classifier go
  add_hidden_rows<float, true> to_hidden;      ///< where sums of hidden states go
  array_view<std::uint8_t const> unclean;      ///< 1 for each block of 128 tokens that is unclean

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    if (group.lane == 0) {
      prepare(scratch);
    }
    sync_cluster();
    int const warpgroup = uniform(group.lane / shape::warpgroup);
    if (warpgroup == 0) {
      lower_registers<Policy.producer_registers>();
      if (group.lane == 0) {
        produce(scratch);
      }
    } else {
      raise_registers<Policy.consumer_registers>();
      consume(scratch, warpgroup - 1, group.lane % shape::warpgroup);
    }
    sync_warp();
    sync_cluster();  // no block ends while the other still writes to its shared memory
  }

 private:
  using state_type = pipeline_state<Policy.stages>;
  using item_state = pipeline_state<items_ahead>;
  using sums_type = typename product::sums_type;
  static constexpr std::int32_t warps_of_tile = loss_part_schedule::warps_of_tile;

  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(hidden_rows);
    prefetch_tensor_map(classifier_rows);
    prefetch_tensor_map(gradient);
    prefetch_tensor_map(last_gradient);
    prefetch_tensor_map(hidden);
    prefetch_tensor_map(classifier);
    epilogue.prepare();
    scratch.ring.init(1, warps_of_tile);
    scratch.ring_of_items.init(1, shape::consumers * warps_of_tile + 1);  // and the second block's producer
    scratch.turns.init();
    fence_barrier_init();
  }

  /// The producer, one thread of each block. The first block's takes items, and sends them to both.
  __device__ __forceinline__ void produce(scratch_type& scratch) const {
    auto const own = static_cast<std::int32_t>(rank_in_cluster());
    constexpr std::int32_t early = 2;  // steps after which the next item is sent
    state_type state;
    item_state items;
    loss_part_item item;
    if (own == 0) {
      item = schedule.at(take_number(counters.next_item()));
      send(scratch, item, items);
    } else {
      item = receive(scratch, items);
    }
    while (item.work() != loss_part_work::none) {
      std::int32_t const next = own == 0 ? take_number(counters.next_item()) : 0;
      await_gradient(item);
      std::int32_t const some = min(item.steps, early);
      load(scratch, item, {0, some}, own, state);
      loss_part_item following;
      if (own == 0) {
        following = schedule.at(next);
        send(scratch, following, items);
      }
      load(scratch, item, {some, item.steps}, own, state);
      item = own == 0 ? following : receive(scratch, items);
    }
  }

  /// Sends an item to both blocks, when all have read what was in its place.
  __device__ __forceinline__ void send(scratch_type& scratch, loss_part_item const& item, item_state& items) const {
    shared_barrier& full = scratch.ring_of_items.await_empty(items);
    full.arrive_and_expect(sizeof(loss_part_item));
    int4 const words{item.steps, item.work_and_part, item.panel, item.tile};
    send_to_block(0, &scratch.items[items.stage], words, full);
    send_to_block(1, &scratch.items[items.stage], words, full);
    items.advance();
  }
  /// What the producer of the second block does instead.
  __device__ __forceinline__ loss_part_item receive(scratch_type& scratch, item_state& items) const {
    scratch.ring_of_items.full[items.stage].arrive_and_expect(sizeof(loss_part_item));
    return next_item(scratch, items);
  }
  /// Reads the next item, and releases its place in the first block. One thread calls it.
  __device__ __forceinline__ static loss_part_item next_item(scratch_type& scratch, item_state& items) {
    scratch.ring_of_items.await_full(items);
    int4 const words = *reinterpret_cast<int4 const*>(&scratch.items[items.stage]);
    scratch.ring_of_items.empty[items.stage].arrive_at_after(0, bit_cast<float>(words.x));
    items.advance();
    return {words.x, words.y, words.z, words.w};
  }

  /// Waits until the gradient by the logits that a product needs is made.
  __device__ __forceinline__ void await_gradient(loss_part_item const& item) const {
    if (item.work() == loss_part_work::hidden) {
      await_counter(counters.made_of_row(item.panel), warps_of_tile * schedule.made_of_row(item.part()));
      fence_async_proxy_of_memory();
    } else if (item.work() == loss_part_work::classifier) {
      await_counter(counters.made(), warps_of_tile * schedule.made(item.part()));
      fence_async_proxy_of_memory();
    }
  }

  /// Loads some stages of an item.
  __device__ __forceinline__ void load(scratch_type& scratch, loss_part_item const& item, step_range const& steps,
                                       std::int32_t own, state_type& state) const {
    std::int32_t const row = item.panel * product::rows + own * shape::block_rows;
    std::int32_t const first = item.part() * schedule.entries;
    std::int32_t const column = item.tile * product::channels;
    tensor_map const& made = schedule.vocabulary - first > schedule.entries ? gradient : last_gradient;
    if (item.work() == loss_part_work::logits) {
      for (auto const at : pipelined(ring_filler(state), steps)) {
        shared_barrier& full = at.when_empty(scratch.ring);
        std::int32_t const k = at.index * product::box;
        full.arrive_and_expect(product::a_bytes + product::b_bytes);
        load_box(scratch.a[at.stage], hidden_rows, full, {k, row});
        load_box_for_cluster(scratch.b[at.stage] + own * (product::b_bytes / 2), classifier_rows, full,
                             {k, first + column + own * b_box_rows}, 3);
      }
    } else if (item.work() == loss_part_work::hidden) {
      for (auto const at : pipelined(ring_filler(state), steps)) {
        shared_barrier& full = at.when_empty(scratch.ring);
        std::int32_t const k = at.index * product::box;
        product::template load<true>(scratch.a[at.stage], scratch.b[at.stage], made, classifier, full,
                                     {row, column, k, first + k, own});
      }
    } else {
      for (auto const at : pipelined(ring_filler(state), steps)) {
        shared_barrier& full = at.when_empty(scratch.ring);
        std::int32_t const k = at.index * product::box;
        product::template load<false>(scratch.a[at.stage], scratch.b[at.stage], made, hidden, full,
                                      {row, column, k, k, own});
      }
    }
  }

  __device__ __forceinline__ void consume(scratch_type& scratch, int consumer, int lane) const {
    auto const own = static_cast<std::int32_t>(rank_in_cluster());
    int const warp = uniform(lane / 32);
    std::int32_t const first_row = own * shape::block_rows + warp * 16;
    state_type state;
    item_state items;
    int round = 0;
    sums_type sums;
    bool is_last = false;
    if (consumer == 1) {
      loss_part_item const before = read_item(scratch, items);
      is_last = before.work() == loss_part_work::none;
      state.skip(before.steps);
    }
    while (!is_last) {
      loss_part_item const item = read_item(scratch, items);
      if (item.work() == loss_part_work::none) {
        break;
      }
      scratch.turns.take(consumer, round++);
      state.agree();
      multiply(scratch, item, consumer, state, sums);
      loss_part_item const other = read_item(scratch, items);
      is_last = other.work() == loss_part_work::none;
      state.skip(other.steps);
      write(item, sums, first_row, scratch.of_warp[consumer][warp]);
    }
    epilogue.finish();
  }

  /// The next item, for a warp.
  __device__ __forceinline__ static loss_part_item read_item(scratch_type& scratch, item_state& items) {
    loss_part_item item{};
    if (thread_index() % 32 == 0) {
      item = next_item(scratch, items);
    } else {
      items.advance();
    }
    return {uniform(item.steps), uniform(item.work_and_part), uniform(item.panel), uniform(item.tile)};
  }

  __device__ __forceinline__ void multiply(scratch_type& scratch, loss_part_item const& item, int consumer,
                                           state_type& state, sums_type& sums) const {
    if (item.work() == loss_part_work::logits) {
      multiply_tile(scratch, item.steps, consumer, state, sums,
                    [&](pipeline_step const& at, bool add) { multiply_logits(scratch, at.stage, sums, add); });
    } else if (item.work() == loss_part_work::hidden) {
      multiply_tile(scratch, item.steps, consumer, state, sums, [&](pipeline_step const& at, bool add) {
        product::template multiply<product::along>(scratch.a, scratch.b, at.stage, sums, add);
      });
    } else {
      bool const cleans = any_unclean();
      multiply_tile(scratch, item.steps, consumer, state, sums, [&](pipeline_step const& at, bool add) {
        if (cleans && unclean[at.index / 2] != 0) {
          product::clear_unlabelled(scratch.b[at.stage], at.index, epilogue.tokens);
        }
        product::template multiply<product::across>(scratch.a, scratch.b, at.stage, sums, add);
      });
      if (thread_index() % 32 == 0) {
        add_to_counter(counters.classifier(), 1);  // G has been read
      }
    }
  }

  /// Multiplies the stages of a tile. One stage is multiplied while the next is awaited, and a stage is released when
  /// the next one's multiplications have begun. When the last stage is loaded it is the other warpgroup's turn.
  template <class Multiply>
  __device__ __forceinline__ static void multiply_tile(scratch_type& scratch, std::int32_t steps, int consumer,
                                                       state_type& state, sums_type& sums, Multiply const& multiply) {
    product::pin(sums);
    product_reader reads(scratch.ring, state, release_to_cluster<2>{});
    multiply_in_turn(reads, scratch.turns, consumer, steps, multiply);
    reads.finish(sums);
  }

  /// Starts to multiply a stage of hidden states and of the classifier, which make logits.
  __device__ __forceinline__ static void multiply_logits(scratch_type& scratch, int stage, sums_type& sums, bool add) {
    using mma = warpgroup_mma<Operand, Policy.columns>;
    auto const at = [&](void const* first, int bytes) {
      return matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(first) +
                                                  static_cast<std::uint32_t>(stage * bytes));
    };
    matrix_descriptor const a = at(scratch.a, product::a_bytes);
    matrix_descriptor const b = at(scratch.b, product::b_bytes);
    begin_multiply();
#pragma unroll
    for (int bytes = 0; bytes < shape::depth_bytes; bytes += 32) {
#pragma unroll
      for (int half = 0; half < product::halves; ++half) {
        mma::multiply(sums[half], a.further(half * product::box_bytes + bytes), b.further(bytes), add || bytes != 0);
      }
    }
    commit_multiply();
  }

  /// Whether some token without a label has hidden states that are not finite.
  __device__ __forceinline__ bool any_unclean() const {
    bool is_own = false;
    for (std::int64_t block = thread_index() % 32; block < unclean.size(); block += 32) {
      is_own |= unclean[block] != 0;
    }
    return any_of_warp(is_own);
  }

  /// Writes a warp's sums, a half of its rows after the other in the registers of the first. `first_row`: the warp's
  /// first row in the tile.
  __device__ __forceinline__ void write(loss_part_item const& item, sums_type& sums, std::int32_t first_row,
                                        typename Epilogue::scratch_type& scratch) const {
    std::int32_t const first = item.part() * schedule.entries;
    loss_part_range const range{first, schedule.entries, schedule.vocabulary, nullptr};
    box_coordinate at{item.tile * product::channels, item.panel * product::rows + first_row};
    loss_part_work const work = item.work();
    if (work == loss_part_work::logits) {
      await_memory(item);
      at.column += first;
    }
    auto& staging = *reinterpret_cast<sum_staging*>(scratch.box);
#pragma unroll 1
    for (int half = 0; half < product::halves; ++half) {
      pin_register(at.column);  // else what the epilogue makes of it leaves the loop, and takes registers
      if (work == loss_part_work::logits) {
        epilogue(sums[0], at, scratch, 0);
      } else if (work == loss_part_work::hidden) {
        to_hidden.in_lines(range, epilogue.tokens, sums[0], at.row, at.column, staging);
      } else {
        to_classifier.in_lines(range, sums[0], at.row, at.column, staging);
      }
#pragma unroll
      for (int i = 0; i < product::channels / 2; ++i) {
        sums[0][i] = sums[1][i];
      }
      at.row += product::box;
    }
    sync_warp();
    if (thread_index() % 32 == 0) {
      count(item);
    }
  }

  /// Waits until all that reads the gradient of the part before has done so, where a tile of this part's is written.
  __device__ __forceinline__ void await_memory(loss_part_item const& item) const {
    if (thread_index() % 32 == 0) {
      await_counter(counters.hidden(item.panel), warps_of_tile * schedule.hidden_before(item.part()));
      await_counter(counters.classifier(), warps_of_tile * schedule.classifier_before(item.part()));
      fence_async_proxy_of_memory();
    }
    sync_warp();
  }

  /// Tells that the warp's sums are written. One lane calls it.
  __device__ __forceinline__ void count(loss_part_item const& item) const {
    if (item.work() == loss_part_work::logits) {
      await_box_stores<0>();
      fence_async_proxy_of_memory();
      add_to_counter(counters.made_of_row(item.panel), 1);
      add_to_counter(counters.made(), 1);
    } else if (item.work() == loss_part_work::hidden) {
      add_to_counter(counters.hidden(item.panel), 1);
    }
  }
};

}  // namespace v0
}  // namespace tessera
