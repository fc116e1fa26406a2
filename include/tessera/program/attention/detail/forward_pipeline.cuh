// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_pipeline`: shared memory of warpgroup_attention, and its producer: the thread that hands
/// out work items and loads queries, keys and values by TMA.
///
/// A thread block takes one work item after the other: blocks of queries, or splits of their keys. The producer fetches
/// the number of the next one. Keys and values come in tiles of 128 tokens, from the last tile to the first, or in the
/// order of merged lists of tiles (attention/detail/listed_steps.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/program/attention/detail/correction_products.cuh>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/detail/forward_shape.cuh>
#include <tessera/program/attention/detail/forward_splits.hpp>
#include <tessera/program/attention/detail/line_products.cuh>
#include <tessera/program/attention/detail/listed_steps.cuh>
#include <tessera/program/attention/detail/staged_terms.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>
#include <tessera/tile/cuda/sm_90/message_ring.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/attention/attention.hpp>
#include <tessera/view/attention_block_list.hpp>

namespace tessera {
inline namespace v0 {

/// Terms: a score_terms, what is added to scores. IsListed: whether there are lists of tiles.
template <int Channels, warpgroup_attention_policy Policy, class Terms, bool IsListed>
struct attention_pipeline {
  using shape = warpgroup_attention_shape<Channels, Policy>;
  using pipeline_type = pipeline_state<Policy.stages>;
  /// Where a warp is among stages of queries, and among work items.
  using query_state = pipeline_state<shape::query_stages>;
  /// A work item, whose queries are loaded.
  using query_step = fill_step<shape::query_stages>;
  /// A tile of keys and values that is loaded.
  using tile_step = fill_step<Policy.stages>;
  /// Where a warp is in the steps of a list.
  using step_state = typename listed_steps<Policy.stages>::state_type;
  using group_count = pipeline_count<listed_steps<Policy.stages>::stages>;  ///< how many groups of steps there were
  /// Whether sums begin at scores of mean queries that tensor cores make.
  static constexpr bool begins_at_corrections = Policy.begins_at_products && Terms::has_corrections;
  /// Whether sums begin at terms on a line that tensor cores make.
  static constexpr bool begins_at_line = Policy.begins_at_products && Terms::is_line;
  /// Whether sums begin at the line's base, so that they are bits of floats, without terms.
  static constexpr bool begins_at_base = Policy.begins_at_products && Terms::is_none;
  /// Whether lanes have the scale of their queries in a register, for which there is room then.
  static constexpr bool keeps_query_scale = begins_at_base && !IsListed;
  /// What sums begin at, if they begin at products.
  using begun_type = std::conditional_t<begins_at_corrections, correction_products<Policy.consumers, Policy.stages>,
                                        std::conditional_t<begins_at_line || begins_at_base, line_products, no_terms>>;

  /// What a warp needs of a work item. It has three ranges of tiles: those that are loaded, those that rows of the
  /// warp's warpgroup see, and those of the latter that need no mask. The alignment lets a shift find a warp's element,
  /// without another register.
  struct alignas(64) warp_work_item {
    std::int32_t head;              ///< query head, counted over all sequences
    std::int32_t row;               ///< the first row of the warpgroup
    std::int32_t slot;              ///< attention_split::slot
    std::int32_t queries;           ///< queries of the sequence
    std::int32_t keys;              ///< keys of the sequence
    std::int32_t low;               ///< the first key that the warp's first row sees
    std::int32_t high;              ///< one past the last key that the warp's first row sees
    std::int32_t begin;             ///< the first tile that is loaded
    std::int32_t end;               ///< one past the last tile that is loaded
    std::int32_t own_begin;         ///< the first tile that rows of the warpgroup see
    std::int32_t own_end;           ///< one past the last tile that rows of the warpgroup see
    std::int32_t full_begin;        ///< the first tile without a mask
    std::int32_t full_end;          ///< one past the last tile without a mask
    std::int32_t sequence;          ///< the query head's sequence; only set where scores have terms
    std::int32_t head_of_sequence;  ///< the query head, counted in its sequence; only set where scores have terms
    float slope;                    ///< of terms that lie on a line, in base 2; only set where scores have terms
  };

  struct scratch_type {
    /// Blocks of queries' codes.
    alignas(1024) unsigned char query[shape::query_stages][shape::query_bytes];
    /// Tiles of keys' codes.
    alignas(1024) unsigned char key[Policy.stages][shape::key_bytes];
    /// Tiles of values' codes.
    alignas(1024) unsigned char value[Policy.stages][shape::value_bytes];
    /// Scales of each block of queries.
    alignas(16) float query_scales[shape::query_stages][shape::rows / 2];
    /// Scales of each tile of keys.
    alignas(16) float key_scales[Policy.stages][lane_scales];
    /// What is added to scores, of each tile of keys.
    staged_terms<Terms, Policy.consumers> terms[term_loader<Terms>::is_none ? 1 : Policy.stages];
    stage_ring<shape::query_stages> query_ring;           ///< of blocks of queries
    stage_ring<Policy.stages> key_ring;                   ///< of tiles of keys
    stage_ring<Policy.stages> value_ring;                 ///< of tiles of values
    message_ring<std::int32_t, shape::work_stages> work;  ///< work items, ids of `splits`; negative: no more
    warp_work_item looked_up[4 * Policy.consumers];       ///< what each consumer warp has looked up
    std::conditional_t<IsListed, listed_steps<Policy.stages>, no_terms> steps;  ///< steps through lists
    begun_type begun;  ///< what sums begin at, if they begin at products
  };

  tensor_map query_map;  ///< codes of queries: (batch, head, padded token) x channel
  tensor_map key_map;    ///< codes of keys: (batch, head, padded token) x channel
  /// Codes of values: (batch, head, tile, channel) x slot of 128 tokens; a box is a tile.
  tensor_map value_map;
  float const* query_scales;    ///< scales: batch, head, group of 2 tokens
  float const* key_scales;      ///< scales: batch, head, tile, 4 groups
  std::int32_t queries;         ///< queries of the longest sequence
  std::int32_t keys;            ///< keys of the longest sequence
  std::int32_t padded_queries;  ///< queries of a head in memory
  std::int32_t padded_keys;     ///< keys of a head in memory
  std::int32_t query_heads;     ///< query heads of a sequence
  std::int32_t key_heads;       ///< key heads of a sequence, a divisor of the query heads
  key_band band;
  sequence_lengths query_lengths;  ///< queries of each sequence; null: all are whole
  sequence_lengths key_lengths;    ///< keys of each sequence; null: all are whole
  attention_schedule schedule;
  std::int32_t* taken;       ///< counts turns that were handed out beyond each block's first; 0 at launch
  std::int32_t channels;     ///< channels of a head of values, a multiple of 16
  int query_coders;          ///< warps that make codes of queries; 0: codes are loaded
  attention_splits splits;   ///< how work items of the schedule are split
  term_loader<Terms> terms;  ///< where what is added to scores lies
  std::conditional_t<IsListed, attention_block_list, no_terms> list;  ///< the tiles that are seen

  /// The key head of a query head, both counted over all sequences.
  [[nodiscard]] __device__ __forceinline__ std::int32_t key_head_of(std::int32_t head) const {
    return head / query_heads * key_heads + head % query_heads / (query_heads / key_heads);
  }

  /// Extents of a sequence.
  struct sequence_extents {
    std::int32_t queries;  ///< queries of the sequence
    std::int32_t keys;     ///< keys of the sequence
    key_band band;         ///< keys that its queries see

    /// The tiles that `count` rows from `row` on see.
    [[nodiscard]] __device__ __forceinline__ tile_range tiles(std::int32_t row, std::int32_t count) const {
      return band.tiles({row, min(row + count, queries)}, keys);
    }
  };
  /// The extents of a query head's sequence.
  [[nodiscard]] __device__ __forceinline__ sequence_extents extents_of(std::int32_t head) const {
    if (query_lengths.data == nullptr && key_lengths.data == nullptr) {
      return {queries, keys, band};
    }
    std::int32_t const sequence = head / query_heads;
    auto const own_queries = static_cast<std::int32_t>(length_of(query_lengths, sequence, queries));
    auto const own_keys = static_cast<std::int32_t>(length_of(key_lengths, sequence, keys));
    return {own_queries, own_keys, band.moved((own_keys - own_queries) - (keys - queries))};
  }

  /// Initialises the barriers and the columns of ones, and waits for what the stream did before. All threads call it,
  /// and see all of that after it.
  __device__ __forceinline__ void prepare(cuda_block<shape::lanes> const& group, scratch_type& scratch) const {
    let_next_kernel_start();
    if constexpr (begins_at_corrections || begins_at_line || begins_at_base) {
      scratch.begun.fill(group.lane, shape::lanes);
    }
    fill_ones(group, scratch);
    if (group.lane == 0) {
      prefetch_tensor_map(query_map);
      prefetch_tensor_map(key_map);
      prefetch_tensor_map(value_map);
      init_barriers(scratch, query_coders);
    }
    wait_for_stream();
    group.sync();
  }

  /// The producer, one thread: hands out work items and loads their operands.
  __device__ __forceinline__ void produce(scratch_type& scratch) const {
    query_state query;
    pipeline_type pipeline;
    step_state step;
    scratch.work.send(query, splits.first(static_cast<std::int32_t>(block_index())));
    for (auto const at : pipelined(ring_filler(query), received_by_thread(scratch.work, query))) {
      std::int32_t next = splits.next(at.index);
      if (next < 0) {
        next = splits.first(static_cast<std::int32_t>(blocks_in_grid()) + atomicAdd(taken, 1));
      }
      query_state behind = query;
      behind.advance();
      bool const sends_early = IsListed || query_coders > 0;  // so that others can make codes or merge lists meanwhile
      if (sends_early) {
        scratch.work.send(behind, next);
      }
      load_work_item(scratch, at, pipeline, step);
      if (!sends_early) {
        scratch.work.send(behind, next);
      }
    }
    if constexpr (begins_at_corrections) {
      scratch.key_ring.await_empty(pipeline);
      scratch.begun.end(pipeline.stage);
    }
  }

  /// Merges the lists of the thread block's work items. One warp.
  __device__ __forceinline__ void merge(scratch_type& scratch) const {
    pipeline_state<shape::work_stages> received;
    step_state step;
    for (auto const at : pipelined(late_reader(received), received_by_warp(scratch.work, received))) {
      tile_range seen{};
      list_cursor own = cursor_of(at.index, static_cast<std::int32_t>(thread_index_here() % 32), seen);
      own.start();
      merge_lists(scratch.steps, step, own,
                  [&](std::int32_t tile) { return tile >= seen.full_begin && tile < seen.full_end; });
    }
  }

  /// A split of a work item, or all of it, and its tiles.
  struct work_split {
    attention_work_item work;  ///< head and block of queries
    sequence_extents extents;  ///< extents of the sequence
    tile_range tiles;          ///< tiles of this split
    std::int32_t slot;         ///< attention_split::slot
  };
  /// The split with the id `index`.
  [[nodiscard]] __device__ __forceinline__ work_split split_of(std::int32_t index) const {
    attention_work_item const work =
        schedule.at(splits.at(index).work);  // the rest of the split is looked up later: registers are scarce
    sequence_extents const extents = extents_of(work.head);
    tile_range const tiles = extents.tiles(work.block * shape::rows, shape::rows);
    attention_split const split = splits.at(index);
    return {work, extents, split.of(tiles), split.slot};
  }

  /// Makes all tiles take the way of tiles that are cut on both sides, where a scale of the warpgroup's queries times
  /// one of the work item's keys is too large for weights of integers. Scales are not negative, so that their bits have
  /// their order, with NaN the greatest; all warps of the warpgroup find the same. A consumer warp.
  __device__ __forceinline__ void route_large_scales(scratch_type& scratch, int warp, float const* of_queries,
                                                     float most_scale) const {
    warp_work_item const volatile& work = scratch.looked_up[warp];
    auto const lane = static_cast<std::int32_t>(thread_index_here() % 32);
    std::int32_t const end = uniform(work.end);
    auto const* const scales = reinterpret_cast<uint4 const*>(key_scales) +
                               std::int64_t{key_head_of(uniform(work.head))} * (padded_keys / attention_tile_keys);
    std::uint32_t most = 0;
    for (std::int32_t first = uniform(work.begin); first < end; first += 32) {
      uint4 const of_tile = scales[min(first + lane, end - 1)];
      most = max(most, max(max(of_tile.x, of_tile.y), max(of_tile.z, of_tile.w)));
    }
    float const key_scale = __uint_as_float(largest_of_warp(most));
    auto const query_bits = __float_as_uint(of_queries[warp / 4 * shape::warpgroup_rows / 2 + lane]);
    float const query_scale = __uint_as_float(largest_of_warp(query_bits));
    bool const is_small = query_scale * key_scale < most_scale;
    std::int32_t const own_end = work.own_end;
    std::int32_t const full_begin = is_small ? work.full_begin : own_end;
    std::int32_t const full_end = is_small ? work.full_end : own_end;
    sync_warp();
    scratch.looked_up[warp].full_begin = full_begin;
    scratch.looked_up[warp].full_end = full_end;
    sync_warp();
  }

  /// What a consumer warp needs of work item number `index`, but for what terms need. `row_of_warp`: the warp's first
  /// row among its warpgroup's.
  [[nodiscard]] __device__ __forceinline__ warp_work_item look_up(std::int32_t index, int warp,
                                                                  std::int32_t row_of_warp) const {
    auto const [work, extents, all, slot] = split_of(index);
    std::int32_t const row = work.block * shape::rows + warp / 4 * shape::warpgroup_rows;
    std::int32_t const first = row + row_of_warp;
    tile_range const seen = extents.tiles(row, shape::warpgroup_rows).between(all.begin, all.end);
    return {work.head,
            row,
            slot,
            extents.queries,
            extents.keys,
            first + extents.band.first,
            first + extents.band.last + 1,
            all.begin,
            all.end,
            seen.begin,
            seen.end,
            seen.full_begin,
            seen.full_end,
            0,
            0,
            0.0F};
  }

 private:
  /// A cursor before the list of a warpgroup. `seen`: the tiles that count; none where there is no such warpgroup.
  [[nodiscard]] __device__ __forceinline__ list_cursor cursor_of(std::int32_t index, std::int32_t warpgroup,
                                                                 tile_range& seen) const {
    auto const [work, extents, all, slot] = split_of(index);
    std::int32_t const row = work.block * shape::rows + warpgroup * shape::warpgroup_rows;
    list_cursor cursor{nullptr, list.tiles.strides[3], 0, 0, 0, 0, 0};
    if (warpgroup < Policy.consumers && row < extents.queries) {
      seen = extents.tiles(row, shape::warpgroup_rows).between(all.begin, all.end);
      std::int32_t const sequence = work.head / query_heads;
      std::int32_t const head = work.head - sequence * query_heads;
      std::int32_t const block = work.block * Policy.consumers + warpgroup;
      cursor.left = seen.count() > 0 ? static_cast<std::int32_t>(list.count(sequence, head, block)) : 0;
      cursor.at = &list.tiles(sequence, head, block, 0);
      cursor.begin = seen.begin;
      cursor.end = seen.end;
    }
    return cursor;
  }

  /// Fills the 8 channels behind the values, which never change: one of ones, 7 of zeros.
  __device__ __forceinline__ static void fill_ones(cuda_block<shape::lanes> const& group, scratch_type& scratch) {
    constexpr std::uint32_t four_ones = 0x38383838U;  // e4m3
    constexpr int words = 8 * attention_tile_keys / 4;
    for (int stage = 0; stage < Policy.stages; ++stage) {
      auto* const added = reinterpret_cast<std::uint32_t*>(scratch.value[stage] + Channels * attention_tile_keys);
      for (int i = group.lane; i < words; i += shape::lanes) {
        added[i] = i < attention_tile_keys / 4 ? four_ones : 0;
      }
    }
    fence_async_proxy();
  }

  __device__ __forceinline__ static void init_barriers(scratch_type& scratch, int query_coders) {
    constexpr int warps = 4 * Policy.consumers;
    // Where there are lists, values arrive at the barriers of keys, too.
    int key_fills = IsListed && !Policy.joins_rings ? 2 : 1;
    if constexpr (begins_at_corrections) {
      key_fills += 32 * decltype(scratch.begun)::converters;
    }
    scratch.query_ring.init(max(32 * query_coders, 1), 32 * warps);
    for (int stage = 0; stage < Policy.stages; ++stage) {
      scratch.key_ring.full[stage].init(key_fills);
      scratch.value_ring.full[stage].init(1);
      scratch.key_ring.empty[stage].init(32 * warps);
      scratch.value_ring.empty[stage].init(warps);
    }
    scratch.work.init(warps + 1 + query_coders + (IsListed ? 1 : 0));
    if constexpr (IsListed) {
      scratch.steps.init(warps);
    }
    if constexpr (begins_at_corrections) {
      scratch.begun.init();
    }
    fence_barrier_init();
  }

  __device__ __forceinline__ void load_work_item(scratch_type& scratch, query_step const& query,
                                                 pipeline_type& pipeline, step_state& step) const {
    auto const [work, extents, tiles, slot] = split_of(query.index);
    std::int32_t const key_head = key_head_of(work.head);
    if (query_coders == 0) {
      if (tiles.count() > 0) {
        load_queries(scratch, work.head, work.block * shape::rows, query);
      } else {
        query.when_empty(scratch.query_ring).arrive();
      }
    }
    term_rows const rows = terms_of(work);
    if constexpr (IsListed) {
      load_listed(scratch, pipeline, key_head, rows, step);
    } else {
      for (auto const at : pipelined(ring_filler(pipeline), steps_from_last{tiles.begin, tiles.end})) {
        load_keys(scratch, at, key_head, at.index, rows);
        load_values(scratch, at, key_head, at.index);
      }
    }
  }
  /// Loads the tiles of steps through lists. A step without a tile passes through a stage, too.
  __device__ __forceinline__ void load_listed(scratch_type& scratch, pipeline_type& pipeline, std::int32_t key_head,
                                              term_rows const& rows, step_state& step) const {
    bool is_last = false;
    while (!is_last) {
      scratch.steps.ring.await_full(step);
      step_group const& group = scratch.steps.groups[step.stage];
      step_plan const plan = group.plans[0].read();  // the first warpgroup's, which has as many steps as others
      is_last = plan.is_last();
      for (auto const at : pipelined(ring_filler(pipeline), step_range{0, plan.count()})) {
        load_step(scratch, at, key_head, rows, group.steps[at.index].read());
      }
      scratch.steps.ring.empty[step.stage].arrive();
      step.advance();
    }
  }
  __device__ __forceinline__ void load_step(scratch_type& scratch, tile_step const& at, std::int32_t key_head,
                                            term_rows const& rows, list_step step) const {
    shared_barrier& full = at.when_empty(scratch.key_ring);
    scratch.steps.of_stage[at.stage].write(step);
    if (step.takers() != 0) {
      load_keys(scratch, at, key_head, step.tile(), rows, step);
      load_values(scratch, at, key_head, step.tile());
      return;
    }
    if constexpr (begins_at_corrections) {
      scratch.begun.pass_over(at.stage);
    }
    full.arrive();
    if constexpr (!Policy.joins_rings) {
      static_cast<void>(at.when_empty(scratch.value_ring));
      full.arrive();
    }
  }

  /// Loads a block of queries. Rows beyond the last are another head's, or zeros; their scales are not loaded.
  __device__ __forceinline__ void load_queries(scratch_type& scratch, std::int32_t head, std::int32_t row,
                                               query_step const& query) const {
    std::int32_t const groups = clamp(padded_queries - row, 0, shape::rows) / 2;
    int const scale_bytes = groups * static_cast<int>(sizeof(float));
    float const* const scales = query_scales + (std::int64_t{head} * padded_queries + row) / 2;
    shared_barrier& full = query.when_empty(scratch.query_ring);
    full.arrive_and_expect(shape::query_bytes + scale_bytes);
    if (scale_bytes > 0) {
      load_bytes(scratch.query_scales[query.stage], scales, scale_bytes, full);
    }
#pragma unroll
    for (int panel = 0; panel < shape::panels; ++panel) {
      load_box(scratch.query[query.stage] + panel * shape::rows * shape::row_bytes, query_map, full,
               {panel * shape::row_bytes, head * padded_queries + row});
    }
  }
  __device__ __forceinline__ void load_keys(scratch_type& scratch, tile_step const& at, std::int32_t head,
                                            std::int32_t tile, term_rows const& rows, list_step step = {}) const {
    shared_barrier& full = at.when_empty(scratch.key_ring);
    constexpr int scale_bytes = lane_scales * static_cast<int>(sizeof(float));
    std::int32_t const which = head * (padded_keys / attention_tile_keys) + tile;
    shared_barrier& loads_scales = load_terms(scratch, at.stage, tile, rows, scale_bytes, step);
    load_bytes(scratch.key_scales[at.stage], key_scales + lane_scales * std::int64_t{which}, scale_bytes, loads_scales);
#pragma unroll
    for (int panel = 0; panel < shape::panels; ++panel) {
      load_box(scratch.key[at.stage] + panel * attention_tile_keys * shape::row_bytes, key_map, full,
               {panel * shape::row_bytes, head * padded_keys + tile * attention_tile_keys});
    }
  }
  /// Where the terms of a work item's queries lie.
  [[nodiscard]] __device__ __forceinline__ term_rows terms_of(attention_work_item const& work) const {
    if constexpr (term_loader<Terms>::is_none) {
      return {};
    }
    return terms.rows_of(work.head, query_heads, work.block * Policy.consumers,
                         divide_up(queries, shape::warpgroup_rows));
  }
  /// Announces the bytes of a tile of keys, its scales and its terms, and starts to load the terms. Returns the barrier
  /// at which scales are to arrive: that of the terms, which some warps take with the scales before consumers do, or
  /// that of the keys.
  __device__ __forceinline__ shared_barrier& load_terms(scratch_type& scratch, int stage, std::int32_t tile,
                                                        term_rows const& rows, int scale_bytes, list_step step) const {
    shared_barrier& full = scratch.key_ring.full[stage];
    if constexpr (term_loader<Terms>::is_none) {
      int const value_bytes = Policy.joins_rings ? channels * attention_tile_keys : 0;
      full.arrive_and_expect(shape::key_bytes + scale_bytes + value_bytes);
      return full;
    } else {
      static_assert(!Policy.joins_rings, "tessera: terms are loaded beside keys that are released first");
      std::int32_t const own = min(rows.blocks, Policy.consumers);  // warpgroups that have queries
      unsigned const takers = IsListed ? step.takers() : (1U << own) - 1;
      int const term_bytes = popcount(takers) * term_loader<Terms>::bytes;
      shared_barrier* loads = &full;
      if constexpr (begins_at_corrections) {
        full.arrive_and_expect(shape::key_bytes);
        loads = &scratch.begun.load(stage, takers, rows.block);
        loads->arrive_and_expect(scale_bytes + term_bytes);
      } else {
        full.arrive_and_expect(shape::key_bytes + scale_bytes + term_bytes);
      }
      for (std::int32_t i = 0; i < own; ++i) {
        if (!IsListed || (takers >> i & 1) != 0) {
          terms.load(scratch.terms[stage], i, rows, tile, padded_keys, *loads);
        }
      }
      return *loads;
    }
  }
  __device__ __forceinline__ void load_values(scratch_type& scratch, tile_step const& at, std::int32_t head,
                                              std::int32_t tile) const {
    shared_barrier* full = &scratch.key_ring.full[at.stage];
    if constexpr (!Policy.joins_rings) {
      shared_barrier& full_of_values = at.when_empty(scratch.value_ring);
      full = IsListed ? full : &full_of_values;
      full->arrive_and_expect(channels * attention_tile_keys);
    }
    std::int32_t const which = head * (padded_keys / attention_tile_keys) + tile;
    load_box(scratch.value[at.stage], value_map, *full, {0, which * channels});
  }
};

}  // namespace v0
}  // namespace tessera
