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
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/worker_warps.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/attention/decode.hpp>
#include <tessera/view/cache_sequences.hpp>

namespace tessera {
inline namespace v0 {

/// Attention over pages. Groups: of a value's channels. T: the type of queries and of uncompressed tokens.
template <class Columns, class T, class Result, page_decode_policy Policy>
struct page_decode {
  static constexpr int channels = Columns::channels;
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
  static constexpr int page_tokens = cache_page_format::tokens;    ///< tokens of a page
  static constexpr int page_bytes = Columns::format.read_bytes();  ///< bytes that a layer reads of a page
  static constexpr int batch = 16;                                 ///< uncompressed tokens that a warp takes at a time
  static constexpr int token_bytes = static_cast<int>(sizeof(T)) * channels;  ///< bytes of a key or a value
  /// The pitch of a key and a value, so that rows are in different banks.
  static constexpr int padded_bytes = 2 * token_bytes + 16;
  static constexpr int most_listed = batch - 1 + page_tokens;  ///< the most retained tokens that wait

  /// The warp that comes to a stage of the ring is the one that was there before, so that it knows the phase by its
  /// parity.
  static_assert(stages % warps == 0, "tessera: page_decode has whole rounds of its warps in its ring");

  using schedule_type = decode_schedule<channels, warps, T, Result>;
  using split_type = decode_split<channels>;
  using ahead_type = decode_ahead<channels, (Policy.blocks > 1 ? 1 : 2)>;
  using pipeline_type = pipeline_state<stages>;

  /// The memory of a warp: uncompressed tokens, and at the end of a work item the results that other warps read.
  union alignas(16) warp_memory {
    unsigned char tokens[batch * padded_bytes];  ///< keys and values
    split_type split;                            ///< the warp's sums
  };
  /// Retained tokens of a warp whose keys and values are not yet being loaded.
  struct token_list {
    std::int32_t row[most_listed + 1];    ///< their rows among those of the slot and head
    std::int32_t token[most_listed + 1];  ///< their numbers in the sequence
  };
  struct scratch_type {
    /// The stages of the ring.
    alignas(128) unsigned char page[stages][page_bytes];
    warp_memory memory[warps];  ///< the memory of each warp
    token_list list[warps];     ///< the list of each warp
    ahead_type ahead;
    shared_barrier full[stages];
    shared_barrier empty[stages];
    shared_barrier batch_full[warps];
  };

  schedule_type schedule;
  cache_memory<T> memory;
  cache_sequences sequences;
  int layer;            ///< which layer of the part: 0 or 1
  float factor;         ///< the factor of scores: the softmax's scale and log2(e)
  status_word* status;  ///< where impossible sequences and blocks are reported

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
  __device__ __forceinline__ static void init_barriers(scratch_type& scratch) {
#pragma unroll
    for (int stage = 0; stage < stages; ++stage) {
      scratch.full[stage].init(1);
      scratch.empty[stage].init(1);
    }
#pragma unroll
    for (int warp = 0; warp < warps; ++warp) {
      scratch.batch_full[warp].init(1);
    }
    scratch.ahead.init(warps);
    fence_barrier_init();
  }

  /// The length and pages of a sequence, and the pages of a work item.
  struct extent {
    std::int32_t length;
    std::int32_t pages;
    std::int32_t own_pages;
  };
  /// A work item and what the lists say of it, loaded one work item ahead.
  struct listing {
    decode_work_item work;
    std::int32_t length;
    std::int32_t pages;
    std::int32_t slot;
    std::int32_t block;  ///< the block of the lane's first page
  };
  static constexpr std::int32_t no_length = -1;  ///< the length of an impossible sequence

  /// The extent of a work item, found by a warp; no_length and no pages for an impossible sequence.
  [[nodiscard]] __device__ __forceinline__ extent extent_of(listing const& listed, int lane) const {
    std::int64_t const table = sequences.blocks.extent(1);
    std::int64_t const sealed = sequences.pages.data != nullptr
                                    ? std::int64_t{listed.pages}
                                    : min(sealed_pages(listed.length, memory.window), table);
    sequence_fault const fault = memory.fault_of({listed.slot, listed.length, listed.length, sealed, sealed},
                                                 schedule.results.shape.keys, table);
    if (!fault.is_none()) {
      if (lane == 0) {
        detail::report_on_device(status, fault.code, listed.work.sequence, fault.detail());
      }
      return {no_length, 0, 0};
    }
    // A list may cut a sequence off in its last page, or before it.
    std::int32_t const pages =
        listed.length > 0 ? min(static_cast<std::int32_t>(sealed), divide_up(listed.length, page_tokens)) : 0;
    return {listed.length, pages, schedule.steps_of(listed.work, pages)};
  }
  [[nodiscard]] __device__ __forceinline__ std::int32_t listed_length(decode_work_item const& work) const {
    return sequences.lengths.data != nullptr ? sequences.lengths[work.sequence]
                                             : static_cast<std::int32_t>(schedule.results.shape.keys);
  }
  [[nodiscard]] __device__ __forceinline__ std::int32_t listed_pages(decode_work_item const& work) const {
    return sequences.pages.data != nullptr ? sequences.pages[work.sequence] : 0;
  }
  [[nodiscard]] __device__ __forceinline__ std::int32_t listed_slot(decode_work_item const& work) const {
    return sequences.slots.data != nullptr ? sequences.slots[work.sequence] : work.sequence;
  }

  [[nodiscard]] __device__ __forceinline__ std::int32_t work_page(decode_work_item const& work,
                                                                  std::int32_t own) const {
    return work.split + own * schedule.splits();
  }

  // The loading warp. Each lane has one stage of the ring for itself.

  [[nodiscard]] __device__ __forceinline__ std::int32_t block_of(decode_work_item const& work, std::int32_t own) const {
    auto const most = static_cast<std::int32_t>(sequences.blocks.extent(1));
    std::int32_t const page = work_page(work, min(own, most));
    return page < most ? sequences.blocks(work.sequence, page) : 0;
  }
  [[nodiscard]] __device__ __forceinline__ listing look_up(std::uint32_t number, std::int32_t own) const {
    decode_work_item const work = schedule.at(min(number, schedule.count - 1));
    return {work, listed_length(work), listed_pages(work), listed_slot(work), block_of(work, own)};
  }

  __device__ __forceinline__ void produce(scratch_type& scratch, int lane) const {
    constexpr std::int32_t nothing = 0x40000000;  // more pages than there are
    unsigned turn = 0;
    unsigned phase = 0;
    std::int32_t own = lane < stages ? lane : nothing;  // the lane's next page, counted from the work item's first one
    listing next = look_up(block_index(), own);
    for (std::uint32_t number = block_index(); number < schedule.count; number += blocks_in_grid()) {
      listing const now = next;
      extent const has = extent_of(now, lane);
      std::int32_t block = now.block;
      std::int32_t next_block = block_of(now.work, own + stages);
      bool is_new = true;
      bool can_begin = number != block_index();  // the first queries are loaded before the first pages
      do {
        if (can_begin && own < has.own_pages && scratch.empty[min(lane, stages - 1)].has_ended_by_now(phase ^ 1U)) {
          if (memory.has_block(block)) {
            std::byte const* const page = memory.page(block, now.work.key_head) + memory.format.read_offset(layer);
            scratch.full[lane].arrive_and_expect(page_bytes);
            load_bytes(scratch.page[lane], page, page_bytes, scratch.full[lane]);
          } else {
            spoil_page(scratch.page[lane], scratch.full[lane], block, now.work.sequence);
          }
          own += stages;
          phase ^= 1U;
          block = next_block;
          next_block = block_of(now.work, own + stages);
        }
        if (is_new) {
          schedule.load_ahead(scratch.ahead, turn++, now.work, has.length, has.pages, lane);
          std::int32_t const left = max(has.own_pages - own, 0);
          next = look_up(number + blocks_in_grid(), own + divide_up(left, stages) * stages - has.own_pages);
          is_new = false;
          can_begin = true;
        }
      } while (any_of_warp(own < has.own_pages));
      own = lane < stages ? own - has.own_pages : nothing;
    }
  }

  /// Writes a header that no page has, in place of a page whose block is impossible.
  __device__ __forceinline__ void spoil_page(unsigned char* page, shared_barrier& full, std::int32_t block,
                                             std::int32_t sequence) const {
    sequence_fault const fault = memory.fault_of_block(block);
    detail::report_on_device(status, fault.code, sequence, fault.detail());
    int const header = Columns::parts_of(page, layer).header;
    *reinterpret_cast<cache_page_header*>(page + header) = {~std::uint64_t{0}, 0, spoiled_rows, 0.0F, 0.0F, {0, 0}};
    fence_async_proxy();  // TMA writes the next page
    full.arrive();
  }
  static constexpr std::uint32_t spoiled_rows = 0xffffffffU;

  // The multiplying warps.

  /// The state of a warp in a work item.
  struct warp_state {
    int warp;
    int lane;
    decode_work_item work;
    extent has;
    std::int32_t seen[2];  ///< tokens that each of the lane's columns sees
    T const* query;
    pipeline_type pipeline;
    std::int32_t listed;       ///< retained tokens in the list
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
    state.pipeline.skip(warp);
    std::int32_t next = warp;  // the warp's next page, counted from the work item's first one
    unsigned turn = 0;
    for (std::uint32_t number = block_index(); number < schedule.count; number += blocks_in_grid()) {
      Columns columns;
      begin(scratch.ahead, turn, state, columns, schedule.at(number));
      state.next_batch = state.work.split + schedule.splits() * turns_until(next - state.has.own_pages);
      while (true) {
        bool const has_page = next < state.has.own_pages;
        if (state.has_batch && (!has_page || state.listed >= batch || has_tail(state))) {
          take_batch(scratch, state, columns);
        }
        if (!state.has_batch) {
          ask_for_batch(scratch, state, !has_page);
        }
        if (has_page && state.listed < batch) {
          take_page(scratch, state, columns, work_page(state.work, next));
          next += warps;
        } else if (!has_page && !state.has_batch) {
          break;
        }
      }
      next -= state.has.own_pages;
      columns.finish();
      if (lane == 0) {
        scratch.ahead.leave(turn);
      }
      ++turn;
      schedule.finish(state.work, columns.columns, splits, warp, lane);
      fence_async_proxy();  // TMA writes this memory next
      block_warps::sync();  // other warps have read it until here
    }
  }

  /// The batches of the tail before the warp's first one: after the pages, batches go round among warps.
  [[nodiscard]] __device__ __forceinline__ static std::int32_t turns_until(std::int32_t next) {
    return (next % warps + warps) % warps;
  }
  [[nodiscard]] __device__ __forceinline__ bool has_tail(warp_state const& state) const {
    return state.has.pages * page_tokens + state.next_batch * batch < state.has.length;
  }

  __device__ __forceinline__ void begin(ahead_type& ahead, unsigned turn, warp_state& state, Columns& columns,
                                        decode_work_item const& work) const {
    state.work = work;
    state.query = schedule.await(ahead, turn, work, state.lane);
    std::uint32_t words[schedule_type::strips][2];
    schedule_type::load_query(state.query, state.lane, words);
    state.has.length = ahead.length[ahead_type::slot(turn)];
    state.has.pages = ahead.steps[ahead_type::slot(turn)];
    state.has.own_pages = schedule.steps_of(work, state.has.pages);
    schedule.find_seen(work, state.lane, state.has.length, state.seen);
    state.listed = 0;
    state.has_batch = false;
    columns.template begin<T>(words, factor, state.lane);
    if (state.has.length == no_length) {
      spoil(columns);
    }
  }
  __device__ __forceinline__ static void spoil(Columns& columns) {
    columns.columns.sum[0] = __int_as_float(0x7fffffff);
    columns.columns.sum[1] = __int_as_float(0x7fffffff);
  }

  __device__ __forceinline__ void take_page(scratch_type& scratch, warp_state& state, Columns& columns,
                                            std::int32_t number) const {
    int const stage = state.pipeline.stage;
    scratch.full[stage].wait(state.pipeline.phase);
    unsigned char const* const page = scratch.page[stage];
    typename Columns::parts const parts = Columns::parts_of(page, layer);
    cache_page_header const& header = *reinterpret_cast<cache_page_header const*>(page + parts.header);
    std::uint64_t const retained = header.retained;
    std::int32_t const first = number * page_tokens;
    if (retained != 0) {
      if (header.rows == spoiled_rows) {
        spoil(columns);
      } else {
        list_retained(scratch.list[state.warp], state, retained, static_cast<std::int32_t>(header.first_row), first);
      }
    }
    bool const is_masked = retained != 0 || first + page_tokens > schedule.seen_by_all(state.has.length);
    columns.take(page, parts, {retained, {state.seen[0] - first, state.seen[1] - first}, is_masked}, state.lane);
    block_warps::release(scratch.empty[stage], state.lane);
    state.pipeline.skip(warps);
  }

  __device__ __forceinline__ static void list_retained(token_list& list, warp_state& state, std::uint64_t retained,
                                                       std::int32_t first_row, std::int32_t first_token) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int const token = state.lane + 32 * half;
      if ((retained >> token & 1U) != 0) {
        std::int32_t const before = __popcll(retained & ((std::uint64_t{1} << token) - 1));
        list.row[state.listed + before] = first_row + before;
        list.token[state.listed + before] = first_token + token;
      }
    }
    state.listed += __popcll(retained);
    sync_warp();
  }

  /// Issues copies of a batch: of the list, if it is long enough or nothing else is left, or else of the tail.
  __device__ __forceinline__ void ask_for_batch(scratch_type& scratch, warp_state& state, bool takes_few) const {
    int const which = state.lane % batch;
    int const part = state.lane / batch;
    std::int32_t tokens = 0;
    T const* from = nullptr;
    if (state.listed >= batch || (takes_few && state.listed > 0)) {
      tokens = min(batch, state.listed);
      state.listed -= tokens;
      int const at = state.listed + min(which, tokens - 1);
      from = memory.retained_row(listed_slot(state.work), state.work.key_head, scratch.list[state.warp].row[at], layer,
                                 part);
      state.batch_token = scratch.list[state.warp].token[at];
    } else if (has_tail(state)) {
      std::int32_t const first = state.has.pages * page_tokens + state.next_batch * batch;
      tokens = min(batch, state.has.length - first);
      state.batch_token = first + min(which, tokens - 1);
      from = memory.tail_row(listed_slot(state.work), layer, part, state.work.key_head, state.batch_token);
      state.next_batch += schedule.splits() * warps;
    } else {
      return;
    }
    // A batch that is not full repeats its last token, so that all are finite.
    constexpr std::int32_t unseen = 0x7fffffff;
    state.batch_token = which < tokens ? state.batch_token : unseen;
    state.has_batch = true;
    shared_barrier& full = scratch.batch_full[state.warp];
    if (state.lane == 0) {
      full.arrive_and_expect(2 * batch * token_bytes);
    }
    sync_warp();
    load_bytes(scratch.memory[state.warp].tokens + which * padded_bytes + part * token_bytes, from, token_bytes, full);
  }

  __device__ __forceinline__ void take_batch(scratch_type& scratch, warp_state& state, Columns& columns) const {
    std::uint32_t words[schedule_type::strips][2];
    schedule_type::load_query(state.query, state.lane, words);
    std::int32_t const tokens[2] = {shuffle(state.batch_token, state.lane / 4),
                                    shuffle(state.batch_token, state.lane / 4 + 8)};
    scratch.batch_full[state.warp].wait(state.batch_phase);
    state.batch_phase ^= 1U;
    state.has_batch = false;
    typename Columns::template dense_tokens<T> const at{detail::plain_shared_address(scratch.memory[state.warp].tokens),
                                                        padded_bytes};
    columns.take_tokens(at, words, factor, tokens, state.seen, state.lane);
    sync_warp();
  }
};

}  // namespace v0
}  // namespace tessera
