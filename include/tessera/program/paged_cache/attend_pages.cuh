// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `page_decode`: attention of a few queries over a compressed cache without restoring it, where memory is the limit
/// (sm_90). Codes have 2, 3, 4 or 8 bits.
///
/// A work item (program/attention/decode_schedule.cuh) has pages of 64 tokens, and uncompressed tokens. The kernel is
/// warp-specialised. One warp issues TMA copies of pages into a ring in shared memory, from work item to work item
/// without a pause; each page is one copy. It loads the first queries before the first pages: after a whole ring of
/// pages they would arrive 4 us later. The other warps take the pages round-robin, by page_columns
/// (program/paged_cache/detail/page_fragments.cuh). Each keeps its own sums, so that warps wait for each other only at
/// the end of a work item. Retained tokens and those of the tail are loaded 16 at a time into shared memory of the warp
/// that has their page, or that is next, while it works on other pages.
///
/// The loading warp checks the lists of a work item before it loads anything. Rows of an impossible sequence are NaN,
/// and so are those of a sequence with an impossible block. The other warps see this from the length, or from the
/// header that the loading warp writes in place of the page.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/attention/decode_schedule.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/detail/page_fragments.cuh>
#include <tessera/program/paged_cache/detail/page_work.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/worker_warps.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/attention/decode.hpp>
#include <tessera/view/cache_sequences.hpp>

namespace tessera {
inline namespace v0 {

/// Attention over pages. Groups: of a value's channels. T: the type of queries and of uncompressed tokens.
template <class Columns, class T, class Result, page_decode_policy Policy>
struct page_decode : page_work<Columns, T, Result, Policy.warps> {
  /// The members and steps that do not copy.
  using base = page_work<Columns, T, Result, Policy.warps>;
  using base::batch;
  using base::channels;
  using base::layer;
  using base::memory;
  using base::padded_bytes;
  using base::page_bytes;
  using base::schedule;
  using base::token_bytes;
  using typename base::schedule_type;
  using typename base::split_type;
  using typename base::token_list;
  static constexpr int warps = Policy.warps;
  static constexpr int stages = Policy.stages;
  /// The warps that multiply, and one that loads.
  using block_warps = worker_warps<warps>;
  static constexpr int lanes = block_warps::lanes;
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool is_persistent = true;
  static constexpr bool waits_for_stream = true;

  /// The warp that comes to a stage of the ring is the one that was there before, so that it knows the phase by its
  /// parity.
  static_assert(stages % warps == 0, "tessera: page_decode has whole rounds of its warps in its ring");

  using ahead_type = decode_ahead<channels, (Policy.blocks > 1 ? 1 : 2)>;
  using pipeline_type = pipeline_state<stages>;

  /// The memory of a warp: uncompressed tokens, and at the end of a work item the results that other warps read.
  union alignas(16) warp_memory {
    unsigned char tokens[batch * padded_bytes];  ///< keys and values
    split_type split;                            ///< the warp's sums
  };
  struct scratch_type {
    /// The stages of the ring.
    alignas(128) unsigned char page[stages][page_bytes];
    warp_memory memory[warps];  ///< the memory of each warp
    token_list list[warps];     ///< the list of each warp
    ahead_type ahead;
    stage_ring<stages> ring;           ///< of pages
    shared_barrier batch_full[warps];  ///< of the uncompressed tokens of each warp
  };

  /// Attends for the work items of a block. The launch has as many blocks as run at a time, or fewer.
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
  using base::block_of;
  using base::look_up;
  using typename base::extent;
  using typename base::item_state;
  using typename base::listing;

  __device__ __forceinline__ static void init_barriers(scratch_type& scratch) {
    scratch.ring.init(1, 1);
#pragma unroll
    for (int warp = 0; warp < warps; ++warp) {
      scratch.batch_full[warp].init(1);
    }
    scratch.ahead.init(warps);
    fence_barrier_init();
  }

  // The loading warp. Each lane has one stage of the ring for itself, and fills it when it is empty, whichever of the
  // others are. A loop over pages in their order, pipelined(ring_filler(state), pages) of pipelined_ring.cuh, waits for
  // the stage of the slowest warp: H200, us, for the cases in tuning/attention/decode.hpp: 320, 28.5 and 17.7 by hand,
  // 358, 27.7 and 20.0 by the loop.

  __device__ __forceinline__ void produce(scratch_type& scratch, int lane) const {
    constexpr std::int32_t nothing = 0x40000000;  // more pages than there are
    typename ahead_type::count_type items;
    unsigned phase = 0;
    std::int32_t own = lane < stages ? lane : nothing;  // the lane's next page, counted from the work item's first one
    listing next = look_up(block_index(), own);
    for (std::uint32_t number = block_index(); number < schedule.count; number += blocks_in_grid()) {
      listing const now = next;
      extent const has = base::extent_of(now, lane);
      std::int32_t block = now.block;
      std::int32_t next_block = block_of(now.work, own + stages);
      bool is_new = true;
      bool can_begin = number != block_index();  // the first queries are loaded before the first pages
      do {
        if (can_begin && own < has.own_pages &&
            scratch.ring.empty[min(lane, stages - 1)].has_ended_by_now(phase ^ 1U)) {
          if (memory.has_block(block)) {
            std::byte const* const page = base::page_at(block, now.work);
            scratch.ring.full[lane].arrive_and_expect(page_bytes);
            load_bytes(scratch.page[lane], page, page_bytes, scratch.ring.full[lane]);
          } else {
            base::spoil_page(scratch.page[lane], block, now.work.sequence);
            fence_async_proxy();  // TMA writes the next page
            scratch.ring.full[lane].arrive();
          }
          own += stages;
          phase ^= 1U;
          block = next_block;
          next_block = block_of(now.work, own + stages);
        }
        if (is_new) {
          schedule.load_ahead(scratch.ahead, items, now.work, has.length, has.pages, lane);
          std::int32_t const left = max(has.own_pages - own, 0);
          next = look_up(number + blocks_in_grid(), own + divide_up(left, stages) * stages - has.own_pages);
          is_new = false;
          can_begin = true;
        }
      } while (any_of_warp(own < has.own_pages));
      own = lane < stages ? own - has.own_pages : nothing;
    }
  }

  // The multiplying warps.

  /// The state of a warp in a work item.
  struct warp_state : item_state {
    int warp;
    int lane;
    decode_work_item work;
    extent has;
    T const* query;
    std::int32_t next_batch;   ///< the next batch of the tail
    std::int32_t batch_token;  ///< the number of the lane's token in the batch that is being loaded
    bool has_batch;
    unsigned batch_phase;
  };

  __device__ __forceinline__ void attend(scratch_type& scratch, int warp, int lane) const {
    auto const splits = [&scratch](int which) -> split_type& { return scratch.memory[which].split; };
    warp_state state{};
    state.warp = warp;
    state.lane = lane;
    pipeline_type pipeline;
    pipeline.skip(warp);
    auto const release = [lane](shared_barrier& empty) { block_warps::release(empty, lane); };
    ring_reader const pages(scratch.ring, pipeline, release);  // whose steps take turns with batches
    std::int32_t next = warp;  // the warp's next page, counted from the work item's first one
    typename ahead_type::count_type items;
    late_reader const ahead(items);
    for (std::uint32_t number = block_index(); number < schedule.count; number += blocks_in_grid()) {
      Columns columns;
      auto const item = ahead.begin_step(0);
      shared_barrier& is_read = item.when_full(scratch.ahead.ring);
      begin(scratch.ahead, item, state, columns, schedule.at(number));
      state.next_batch = state.work.split + schedule.splits() * base::turns_until(next - state.has.own_pages);
      while (true) {
        bool const has_page = next < state.has.own_pages;
        if (state.has_batch && (!has_page || state.listed >= batch || has_tail(state))) {
          take_batch(scratch, state, columns);
        }
        if (!state.has_batch) {
          ask_for_batch(scratch, state, !has_page);
        }
        if (has_page && state.listed < batch) {
          pipeline_step const at = pages.begin_step(next);
          base::add_page(scratch.page[at.stage], scratch.list[warp], state, columns, base::work_page(state.work, next),
                         lane);
          pages.end_step(next, warps);
          next += warps;
        } else if (!has_page && !state.has_batch) {
          break;
        }
      }
      next -= state.has.own_pages;
      columns.finish();
      if (lane == 0) {
        is_read.arrive();
      }
      ahead.end_step(0, 1);
      schedule.finish(state.work, columns.columns, splits, warp, lane);
      fence_async_proxy();  // TMA writes this memory next
      block_warps::sync();  // other warps have read it until here
    }
  }

  /// The first token of the next batch of the tail.
  [[nodiscard]] __device__ __forceinline__ static std::int32_t tail_token(warp_state const& state) {
    return state.has.pages * base::page_tokens + state.next_batch * batch;
  }
  [[nodiscard]] __device__ __forceinline__ static bool has_tail(warp_state const& state) {
    return tail_token(state) < state.has.length;
  }

  __device__ __forceinline__ void begin(ahead_type& ahead, pipeline_step const& item, warp_state& state,
                                        Columns& columns, decode_work_item const& work) const {
    state.work = work;
    state.query = schedule.query_of(ahead, item, work, state.lane);
    std::uint32_t words[schedule_type::strips][2];
    schedule_type::load_query(state.query, state.lane, words);
    state.length = ahead.length[item.stage];
    state.has.length = state.length;
    state.has.pages = ahead.steps[item.stage];
    state.has.own_pages = schedule.steps_of(work, state.has.pages);
    state.has_batch = false;
    base::begin_item(state, columns, work, words, state.lane);
  }

  /// Issues copies of a batch: of the list, if it is long enough or nothing else is left, or else of the tail.
  __device__ __forceinline__ void ask_for_batch(scratch_type& scratch, warp_state& state, bool takes_few) const {
    typename base::batch_row row;
    if (state.listed >= batch || (takes_few && state.listed > 0)) {
      row = base::take_listed(scratch.list[state.warp], state, state.work, state.lane);
    } else if (has_tail(state)) {
      row = base::tail_batch(state.work, tail_token(state), state.has.length, state.lane);
      state.next_batch += schedule.splits() * warps;
    } else {
      return;
    }
    state.batch_token = row.token_of(state.lane);
    state.has_batch = true;
    shared_barrier& full = scratch.batch_full[state.warp];
    if (state.lane == 0) {
      full.arrive_and_expect(2 * batch * token_bytes);
    }
    sync_warp();
    load_bytes(scratch.memory[state.warp].tokens + state.lane % batch * padded_bytes + state.lane / batch * token_bytes,
               row.from, token_bytes, full);
  }

  __device__ __forceinline__ void take_batch(scratch_type& scratch, warp_state& state, Columns& columns) const {
    std::uint32_t words[schedule_type::strips][2];
    schedule_type::load_query(state.query, state.lane, words);
    std::int32_t const tokens[2] = {shuffle(state.batch_token, state.lane / 4),
                                    shuffle(state.batch_token, state.lane / 4 + 8)};
    scratch.batch_full[state.warp].wait(state.batch_phase);
    state.batch_phase ^= 1U;
    state.has_batch = false;
    base::add_batch(detail::plain_shared_address(scratch.memory[state.warp].tokens), words, state, columns, tokens,
                    state.lane);
    sync_warp();
  }
};

}  // namespace v0
}  // namespace tessera
