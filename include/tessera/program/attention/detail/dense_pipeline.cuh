// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_pipeline`: extents and shared memory of dense_warpgroup_attention, and its producers: the threads that load
/// queries, keys and values by TMA, from where the caller's heads lie.
///
/// Work items are those of attention/detail/forward_splits.hpp: blocks of queries, or splits of their keys. One thread
/// hands them out, and loads queries and tiles of keys, from the last tile to the first. A thread of another warp loads
/// values in the same order, so that neither waits for what the other needs, nor keeps the other's state in its few
/// registers.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/detail/forward_splits.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>
#include <tessera/tile/cuda/sm_90/message_ring.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/token_boxes.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/attention/dense.hpp>
#include <tessera/view/sequence_lengths.hpp>
#include <tessera/view/sequence_starts.hpp>

namespace tessera {
inline namespace v0 {

/// Extents of dense_warpgroup_attention: threads, rows, bytes of tiles of elements of 16 bits.
template <int Channels, dense_attention_policy Policy>
struct dense_attention_shape {
  static constexpr int channels = Channels;  ///< channels of a head that the program multiplies
  static constexpr int warpgroup = 128;      ///< threads of a warpgroup
  static constexpr int warpgroup_rows = 64;  ///< queries that a warpgroup multiplies
  static constexpr int lanes = warpgroup * (Policy.consumers + 1);
  static constexpr int rows = warpgroup_rows * Policy.consumers;  ///< queries of a thread block
  static constexpr int keys = Policy.keys;                        ///< keys of a tile
  static constexpr int panel_channels = 64;                       ///< channels of a row of a panel, 128 bytes
  static constexpr int panels = Channels / panel_channels;
  static constexpr int least_panels = panels - panels / 4;  ///< panels that all heads of the program have channels in
  static constexpr int row_bytes = 128;                     ///< bytes of a row of a panel
  static constexpr int query_bytes = rows * Channels * 2;   ///< bytes of a block of queries
  static constexpr int tile_bytes = keys * Channels * 2;    ///< bytes of a tile of keys, or of values
  static constexpr int depth_steps = Channels / 16;         ///< multiplications of queries by keys
  static constexpr int key_steps = keys / 16;               ///< multiplications of weights by values
  static constexpr int work_stages = 2;                     ///< numbers of work items in shared memory

  /// The offset of 16 channels, of number `step`, in a tile of `tile_rows` rows.
  TESSERA_FN static constexpr int step_bytes(int step, int tile_rows) {
    return step / 4 * (tile_rows * row_bytes) + step % 4 * 32;
  }

  static_assert(Channels == 64 || Channels == 128 || Channels == 256,
                "tessera: attention by sm_90a's tensor cores takes 64, 128 or 256 channels");
  static_assert(Policy.keys % 16 == 0 && Policy.keys <= 256, "tessera: a tile has a multiple of 16 keys up to 256");
  static_assert(has_register_budgets(1 + Policy.consumers,
                                     Policy.producer_registers + Policy.consumers * Policy.consumer_registers),
                "tessera: warpgroups cannot have more registers together than at the kernel's entry");
};

template <int Channels, dense_attention_policy Policy>
struct dense_pipeline {
  using shape = dense_attention_shape<Channels, Policy>;
  using tile_count = pipeline_count<Policy.stages>;         ///< where a producer is among stages of keys and values
  using query_count = pipeline_count<Policy.query_stages>;  ///< where a warp is among stages of queries
  using work_count = pipeline_count<shape::work_stages>;    ///< where a warp is among work items

  struct scratch_type {
    alignas(1024) unsigned char query[Policy.query_stages][shape::query_bytes];  ///< blocks of queries
    alignas(1024) unsigned char key[Policy.stages][shape::tile_bytes];           ///< tiles of keys
    alignas(1024) unsigned char value[Policy.stages][shape::tile_bytes];         ///< tiles of values
    stage_ring<Policy.query_stages> query_ring;                                  ///< of blocks of queries
    stage_ring<Policy.stages> key_ring;                                          ///< of tiles of keys
    stage_ring<Policy.stages> value_ring;                                        ///< of tiles of values
    message_ring<std::int32_t, shape::work_stages> work;  ///< work items, ids of `splits`; negative: no more
  };

  token_map query_map;          ///< queries, in boxes of a block's rows x 64 channels
  token_map key_map;            ///< keys, in boxes of a tile's keys x 64 channels
  token_map value_map;          ///< values, in such boxes
  std::int32_t queries;         ///< queries of the longest sequence
  std::int32_t keys;            ///< keys of the longest sequence
  std::int32_t channels;        ///< channels of a head
  std::int32_t query_heads;     ///< query heads of a sequence
  std::int32_t heads_together;  ///< query heads that share a key head
  key_band band;
  sequence_lengths query_lengths;  ///< queries of each sequence; null: all are whole
  sequence_lengths key_lengths;    ///< keys of each sequence; null: all are whole
  sequence_starts query_starts;    ///< where queries of sequences begin, if they lie one behind the other
  sequence_starts key_starts;      ///< where keys of sequences begin, if they lie one behind the other
  attention_schedule schedule;
  std::int32_t* taken;      ///< counts turns that were handed out beyond each block's first; 0 at launch
  attention_splits splits;  ///< how work items of the schedule are split

  /// Extents of a sequence.
  struct sequence_extents {
    std::int32_t queries;  ///< queries of the sequence
    std::int32_t keys;     ///< keys of the sequence
    key_band band;         ///< keys that its queries see

    /// The tiles that `count` rows from `row` on see.
    [[nodiscard]] __device__ __forceinline__ tile_range tiles(std::int32_t row, std::int32_t count) const {
      return band.tiles({row, min(row + count, queries)}, keys, shape::keys);
    }
  };
  /// The extents of a sequence.
  [[nodiscard]] __device__ __forceinline__ sequence_extents extents_of(std::int32_t sequence) const {
    if (query_lengths.data == nullptr && key_lengths.data == nullptr) {
      return {queries, keys, band};
    }
    auto const own_queries = static_cast<std::int32_t>(length_of(query_lengths, sequence, queries));
    auto const own_keys = static_cast<std::int32_t>(length_of(key_lengths, sequence, keys));
    return {own_queries, own_keys, band.moved((own_keys - own_queries) - (keys - queries))};
  }

  /// A split of a work item, or all of it, and its tiles.
  struct work_split {
    std::int32_t sequence;     ///< sequence of the batch
    std::int32_t head;         ///< query head of the sequence
    std::int32_t row;          ///< the first query of the block
    sequence_extents extents;  ///< extents of the sequence
    tile_range tiles;          ///< tiles of this split
    std::int32_t slot;         ///< attention_split::slot
  };
  /// The split with the id `index`.
  [[nodiscard]] __device__ __forceinline__ work_split split_of(std::int32_t index) const {
    attention_split const split = splits.at(index);
    attention_work_item const work = schedule.at(split.work);
    std::int32_t const sequence = work.head / query_heads;
    sequence_extents const extents = extents_of(sequence);
    std::int32_t const row = work.block * shape::rows;
    return {sequence, work.head - sequence * query_heads,        row,
            extents,  split.of(extents.tiles(row, shape::rows)), split.slot};
  }

  /// Initialises the barriers, and waits for what the stream did before. All threads call it, and see all of that after
  /// it.
  __device__ __forceinline__ void prepare(cuda_block<shape::lanes> const& group, scratch_type& scratch) const {
    let_next_kernel_start();
    if (group.lane == 0) {
      prefetch_tensor_map(query_map.boxes);
      prefetch_tensor_map(key_map.boxes);
      prefetch_tensor_map(value_map.boxes);
      init_barriers(scratch);
    }
    clear_panels(group.lane, scratch);
    wait_for_stream();
    group.sync();
  }

  /// The producer of keys, one thread: hands out work items and loads their queries and keys.
  __device__ __forceinline__ void produce_keys(scratch_type& scratch) const {
    auto const next = [this](std::int32_t index) {
      std::int32_t const other = splits.next(index);
      return other >= 0 ? other : splits.first(static_cast<std::int32_t>(blocks_in_grid()) + atomicAdd(taken, 1));
    };
    query_count queries;
    tile_count tiles;
    std::int32_t const first = splits.first(static_cast<std::int32_t>(block_index()));
    for (auto const at : pipelined(ring_filler(queries), sent_steps(scratch.work, queries, first, next))) {
      load_keys(scratch, split_of(at.index), at, tiles);
    }
  }

  /// The producer of values, one thread.
  __device__ __forceinline__ void produce_values(scratch_type& scratch) const {
    work_count received;
    tile_count tiles;
    for (auto const at : pipelined(late_reader(received), received_by_thread(scratch.work, received))) {
      load_values(scratch, split_of(at.index), tiles);
    }
  }

 private:
  /// Panels in which heads have channels. The others are not loaded: an H200 reports an illegal access for a box beyond
  /// all channels of a map of tokens, where nothing is mapped before the heads (token_boxes.cuh).
  [[nodiscard]] __device__ __forceinline__ std::int32_t loaded_panels() const {
    return shape::least_panels == shape::panels || channels > shape::least_panels * shape::panel_channels
               ? shape::panels
               : shape::least_panels;
  }
  /// Writes zeros where no panel is loaded.
  __device__ __forceinline__ void clear_panels(int lane, scratch_type& scratch) const {
    if (loaded_panels() == shape::panels) {
      return;
    }
    for (auto& query : scratch.query) {
      clear_panels(lane, query, shape::query_bytes);
    }
    for (int stage = 0; stage < Policy.stages; ++stage) {
      clear_panels(lane, scratch.key[stage], shape::tile_bytes);
      clear_panels(lane, scratch.value[stage], shape::tile_bytes);
    }
    fence_async_proxy();
  }
  __device__ __forceinline__ static void clear_panels(int lane, unsigned char* tile, int bytes) {
    for (int at = bytes / shape::panels * shape::least_panels + 16 * lane; at < bytes; at += 16 * shape::lanes) {
      *reinterpret_cast<uint4*>(tile + at) = uint4{};
    }
  }

  __device__ __forceinline__ static void init_barriers(scratch_type& scratch) {
    constexpr int warps = 4 * Policy.consumers;
    scratch.query_ring.init(1, warps);
    for (int stage = 0; stage < Policy.stages; ++stage) {
      scratch.key_ring.full[stage].init(1);
      scratch.value_ring.full[stage].init(1);
      scratch.key_ring.empty[stage].init(warps);
      scratch.value_ring.empty[stage].init(warps);
    }
    scratch.work.init(warps + 1);
    fence_barrier_init();
  }

  /// The tokens of a sequence that exist in memory.
  [[nodiscard]] __device__ __forceinline__ static token_interval tokens_of(sequence_starts const& starts,
                                                                           std::int32_t sequence, std::int32_t count) {
    if (starts.first.data == nullptr) {
      return {0, count};
    }
    std::int32_t const first = starts.first[sequence];
    auto const total = static_cast<std::int32_t>(starts.total);
    bool const exists = first >= 0 && first < total;
    return {exists ? first : 0, exists ? min(count, total - first) : 0};
  }

  /// Where the keys and the values of a split's head lie.
  [[nodiscard]] __device__ __forceinline__ token_place keys_of(token_map const& map, work_split const& split) const {
    std::int32_t const sequence = key_starts.first.data == nullptr ? split.sequence : 0;
    return map.place_of({sequence, split.head / heads_together},
                        tokens_of(key_starts, split.sequence, split.extents.keys));
  }
  /// Loads queries and keys of a split. `tiles`: how many tiles were loaded before.
  __device__ __forceinline__ void load_keys(scratch_type& scratch, work_split const& split,
                                            fill_step<Policy.query_stages> const& query, tile_count& tiles) const {
    load_queries(scratch, split, query);
    token_place const from = keys_of(key_map, split);
    for (auto const at : pipelined(ring_filler(tiles), steps_from_last{split.tiles.begin, split.tiles.end})) {
      load_tile(scratch.key[at.stage], key_map, at.when_empty(scratch.key_ring), from, at.index);
    }
  }
  /// Loads values of a split.
  __device__ __forceinline__ void load_values(scratch_type& scratch, work_split const& split, tile_count& tiles) const {
    token_place const from = keys_of(value_map, split);
    for (auto const at : pipelined(ring_filler(tiles), steps_from_last{split.tiles.begin, split.tiles.end})) {
      load_tile(scratch.value[at.stage], value_map, at.when_empty(scratch.value_ring), from, at.index);
    }
  }

  __device__ __forceinline__ void load_queries(scratch_type& scratch, work_split const& split,
                                               fill_step<Policy.query_stages> const& query) const {
    shared_barrier& full = query.when_empty(scratch.query_ring);
    if (split.tiles.count() <= 0) {
      full.arrive();
      return;
    }
    std::int32_t const panels = loaded_panels();
    full.arrive_and_expect(panels * (shape::query_bytes / shape::panels));
    std::int32_t const sequence = query_starts.first.data == nullptr ? split.sequence : 0;
    token_place const from =
        query_map.place_of({sequence, split.head}, tokens_of(query_starts, split.sequence, split.extents.queries));
#pragma unroll
    for (int panel = 0; panel < shape::panels; ++panel) {
      if (panel < shape::least_panels || panel < panels) {
        load_token_box(scratch.query[query.stage] + panel * shape::rows * shape::row_bytes, query_map, full, from,
                       {panel * shape::panel_channels, split.row});
      }
    }
  }

  __device__ __forceinline__ void load_tile(unsigned char* to, token_map const& map, shared_barrier& full,
                                            token_place const& from, std::int32_t tile) const {
    std::int32_t const panels = loaded_panels();
    full.arrive_and_expect(panels * (shape::tile_bytes / shape::panels));
#pragma unroll
    for (int panel = 0; panel < shape::panels; ++panel) {
      if (panel < shape::least_panels || panel < panels) {
        load_token_box(to + panel * shape::keys * shape::row_bytes, map, full, from,
                       {panel * shape::panel_channels, tile * shape::keys});
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
