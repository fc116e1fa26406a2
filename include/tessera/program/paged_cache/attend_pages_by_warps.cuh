// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `page_decode_by_warps`: what `page_decode` (program/paged_cache/attend_pages.cuh) computes, for GPUs without TMA:
/// each warp copies its own pages by cp.async (sm_80 and later).
///
/// A warp has some stages of shared memory. In each is a page, or a batch of 16 uncompressed tokens. A stage that was
/// read is filled with what the warp takes next, from work item to work item. So no warp waits for another but at the
/// end of a work item, where their columns are added, and there is no barrier in memory. The lists of a work item are
/// looked up one work item ahead, and the blocks of a warp's pages 32 pages ahead.
///
/// Retained tokens are found when their page is read. When 16 of them wait, they are the batch that is copied next. The
/// rest of a work item's go to the stage that was read last, and the warp waits for them: by then the other stages hold
/// pages of the next work item.
///
/// Cost of a page of 128 channels, 4 bits and 2 groups, 9376 bytes: a lane has 19 copies of 16 bytes and the 730
/// instructions of page_columns. With all else a warp executes 1020 for each 64 tokens of the first case in
/// tuning/attention/decode.hpp. A multiprocessor of an H200 loads a page in 530 cycles at 4.1 TB/s, in which its
/// schedulers can issue 2100; for one of an A100 these are 710 at 2 TB/s, and 2800.
#pragma once

#include <cstdint>

#include <tessera/program/attention/decode_schedule.cuh>
#include <tessera/program/paged_cache/detail/page_work.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_80/refilled_ring.cuh>
#include <tessera/tile/cuda/sm_90/worker_warps.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/attention/decode.hpp>

namespace tessera {
inline namespace v0 {

/// Attention over pages, as page_decode. T: the type of queries and of uncompressed tokens.
template <class Columns, class T, class Result, page_decode_policy Policy>
struct page_decode_by_warps : page_work<Columns, T, Result, Policy.warps> {
  /// The members and steps that do not copy.
  using base = page_work<Columns, T, Result, Policy.warps>;
  using base::batch;
  using base::padded_bytes;
  using base::page_bytes;
  using base::schedule;
  using base::token_bytes;
  using typename base::schedule_type;
  using typename base::split_type;
  using typename base::token_list;
  static constexpr int warps = Policy.warps;
  static constexpr int stages = Policy.stages / Policy.warps;  ///< stages of a warp
  static constexpr int lanes = lanes_in_a_warp * warps;
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr int from_architecture = 800;
  static constexpr bool is_persistent = true;
  static_assert(Policy.stages % warps == 0, "tessera: each warp of page_decode_by_warps has as many stages");

  /// A page, or a batch of keys and values.
  union alignas(16) stage_memory {
    unsigned char page[page_bytes];              ///< what a layer reads of a page
    unsigned char tokens[batch * padded_bytes];  ///< keys and values, each padded
  };
  struct scratch_type {
    stage_memory stage[warps][stages];  ///< the stages of each warp
    split_type split[warps];            ///< at the end of a work item, each warp's sums
    token_list list[warps];             ///< the list of each warp
  };

  /// Attends for the work items of a block. The launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    warp_state state{};
    state.warp = uniform(group.lane / lanes_in_a_warp);
    state.lane = group.lane % lanes_in_a_warp;
    attend(scratch, state);
  }

 private:
  using typename base::extent;
  using typename base::item_state;
  using typename base::listing;
  /// The warps of the block, which all work.
  using block_warps = worker_warps<warps>;

  /// Whether lists are looked up one work item ahead, which takes four registers.
  static constexpr bool looks_ahead = Columns::channels <= 128;

  /// What a stage has, or will have when its copies are done: the number of a page in the sequence, of the lane's token
  /// of a batch, negated by ~, or nothing.
  using stage_content = std::int32_t;
  static constexpr stage_content nothing = 0x7fffffff;

  /// Where the warp is with its copies: in the work item that it attends to, or in the next one.
  struct cursor {
    std::int32_t page;        ///< the warp's next page
    std::int32_t pages;       ///< pages of the sequence
    std::int32_t tail;        ///< the first token of the warp's next batch of the tail
    std::int32_t length;      ///< tokens of the sequence, or no_length
    std::int32_t block;       ///< the block of one of the warp's 32 pages among which the next is
    std::int32_t next_block;  ///< the same of the 32 pages after these
    int turn;                 ///< pages of the work item that the warp has copied
    listing coming;           ///< what the lists say of the next work item; `work` is not kept

    [[nodiscard]] __device__ __forceinline__ bool has_page() const { return page < pages; }
    [[nodiscard]] __device__ __forceinline__ bool has_tail() const { return tail < length; }
    [[nodiscard]] __device__ __forceinline__ bool is_done() const { return !has_page() && !has_tail(); }
  };
  struct warp_state : item_state {
    int warp;
    int lane;
    std::uint32_t number;          ///< of the work item that the warp attends to
    int stage;                     ///< the stage that is read next
    int own;                       ///< stages that are filled for the work item
    int others;                    ///< stages that are filled for the next work item
    bool is_ahead;                 ///< whether copies are in the next work item
    bool is_first;                 ///< whether the next stage was filled last, before all others' turns
    stage_content filled[stages];  ///< what the stages have, from the next one on
    cursor ahead;
  };

  __device__ __forceinline__ void attend(scratch_type& scratch, warp_state& state) const {
    auto const splits = [&scratch](int which) -> split_type& { return scratch.split[which]; };
#pragma unroll
    for (stage_content& filled : state.filled) {
      filled = nothing;
    }
    state.number = block_index();
    if constexpr (looks_ahead) {
      state.ahead.coming = base::look_up(state.number, own_page(state, 0));
    }
    go_on(state);
    std::uint32_t words[schedule_type::strips][2];
    load_query(schedule.at(state.number), state.lane, words);
    cuda_warp const own;
    auto const copies = [&](int stage) { fill(scratch, state, stage); };
    ring_refiller<stages, cuda_warp, decltype(copies)> const ring(own, state.stage, copies);
    while (state.number < schedule.count) {
      Columns columns;
      begin(state, columns, words);
      do {
        if (state.is_first) {
          async_copy_wait<0>();  // the stage was filled last
        }
        int const stage = ring.begin_step(0).stage;
        take(scratch, state, columns, stage);
        ring.end_step();
        state.stage = state.is_first ? stage : state.stage;
      } while (state.own > 0 || state.listed > 0 || !state.is_ahead);
      columns.finish();
      load_query(schedule.at(min(number_ahead(state), schedule.count - 1)), state.lane, words);
      schedule.finish(schedule.at(state.number), columns.columns, splits, state.warp, state.lane);
      block_warps::sync();  // other warps have read its sums
      state.number += blocks_in_grid();
      state.is_ahead = false;
    }
  }

  /// The work item in which copies are.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t number_ahead(warp_state const& state) const {
    return state.number + (state.is_ahead ? blocks_in_grid() : 0U);
  }
  /// Begins with the copies of that work item; beyond the last one nothing is left to copy.
  __device__ __forceinline__ void go_on(warp_state& state) const {
    cursor& ahead = state.ahead;
    std::uint32_t const number = number_ahead(state);
    listing now = looks_ahead ? ahead.coming : base::look_up(number, own_page(state, 0));
    now.work = schedule.at(min(number, schedule.count - 1));
    extent const has =
        number < schedule.count ? base::extent_of(now, lanes_in_a_warp * state.warp + state.lane) : extent{0, 0, 0};
    ahead.page = base::work_page(now.work, state.warp);
    ahead.pages = has.pages;
    ahead.length = has.length;
    std::int32_t const before = now.work.split + schedule.splits() * base::turns_until(state.warp - has.own_pages);
    ahead.tail = has.pages * base::page_tokens + before * batch;
    ahead.turn = 0;
    ahead.block = now.block;
    ahead.next_block = base::block_of(now.work, own_page(state, 1));
    if constexpr (looks_ahead) {
      ahead.coming = base::look_up(number + blocks_in_grid(), own_page(state, 0));
    }
  }
  /// The lane's page among 32 of the warp, which have had `turns` times 32 before them, counted from the work item's
  /// first one.
  [[nodiscard]] __device__ __forceinline__ static std::int32_t own_page(warp_state const& state, int turns) {
    return state.warp + (lanes_in_a_warp * turns + state.lane) * warps;
  }
  /// Loads the query of the lane's row.
  __device__ __forceinline__ void load_query(decode_work_item const& work, int lane,
                                             std::uint32_t (&words)[schedule_type::strips][2]) const {
    int const row = lane / 4;
    auto const of = schedule.row_of(work, row);
    bool const is_inside = work.first_row + row < schedule.rows;
    schedule_type::load_query(is_inside ? &schedule.queries(work.sequence, of.head, of.query, 0) : nullptr, lane,
                              words);
  }

  /// Begins the work item in which copies are.
  __device__ __forceinline__ void begin(warp_state& state, Columns& columns,
                                        std::uint32_t const (&words)[schedule_type::strips][2]) const {
    state.length = state.ahead.length;
    state.own = state.others;
    state.others = 0;
    base::begin_item(state, columns, schedule.at(state.number), words, state.lane);
  }

  /// Takes the next stage.
  __device__ __forceinline__ void take(scratch_type& scratch, warp_state& state, Columns& columns, int number) const {
    stage_memory const& stage = scratch.stage[state.warp][number];
    stage_content const has = state.filled[0];
    if (has < 0) {
      std::uint32_t words[schedule_type::strips][2];
      load_query(schedule.at(state.number), state.lane, words);
      std::int32_t const tokens[2] = {shuffle(~has, state.lane / 4), shuffle(~has, state.lane / 4 + 8)};
      base::add_batch(detail::plain_shared_address(stage.tokens), words, state, columns, tokens, state.lane);
      --state.own;
    } else if (has != nothing) {
      base::add_page(stage.page, scratch.list[state.warp], state, columns, has, state.lane);
      --state.own;
    }
  }

  /// Fills the stage that was read: with retained tokens, if enough are listed or nothing else is left of the work
  /// item, or with what comes next. The stage has its turn after all others; but it is read first where it has the last
  /// of the work item, or where another page could fill the list.
  __device__ __forceinline__ void fill(scratch_type& scratch, warp_state& state, int number) const {
    int const lane = static_cast<int>(thread_index_here() % 32U);
    stage_memory& stage = scratch.stage[state.warp][number];
    cursor& ahead = state.ahead;
    bool const has_all = state.is_ahead || ahead.is_done();
    state.is_first =
        state.listed >= (state.others > 0 ? batch : 2 * batch) || (has_all && state.own == 0 && state.listed > 0);
    bool const takes_list = state.is_first || state.listed >= batch;
    if (!takes_list && has_all && !state.is_ahead) {
      state.is_ahead = true;
      go_on(state);
    }
    stage_content next = nothing;
    if (!takes_list && ahead.has_page()) {
      next = copy_page(stage.page, state, lane);
    } else if (takes_list || ahead.has_tail()) {
      auto const row = takes_list ? base::take_listed(scratch.list[state.warp], state, schedule.at(state.number), lane)
                                  : base::tail_batch(schedule.at(number_ahead(state)), ahead.tail, ahead.length, lane);
      ahead.tail += takes_list ? 0 : schedule.splits() * (warps * batch);
      copy_tokens(stage.tokens, row.from, lane);
      next = ~row.token_of(lane);
    }
    int const filled = next == nothing ? 0 : 1;
    bool const is_own = takes_list || !state.is_ahead;
    state.own += is_own ? filled : 0;
    state.others += is_own ? 0 : filled;
    if (state.is_first) {
      state.filled[0] = next;
      return;
    }
#pragma unroll
    for (int i = 0; i + 1 < stages; ++i) {
      state.filled[i] = state.filled[i + 1];
    }
    state.filled[stages - 1] = next;
  }
  /// Starts to copy the warp's next page. Returns its number in the sequence.
  __device__ __forceinline__ std::int32_t copy_page(unsigned char* to, warp_state& state, int lane) const {
    cursor& ahead = state.ahead;
    decode_work_item const work = schedule.at(number_ahead(state));
    if (ahead.turn % lanes_in_a_warp == 0 && ahead.turn > 0) {
      ahead.block = ahead.next_block;
      ahead.next_block = base::block_of(work, own_page(state, ahead.turn / lanes_in_a_warp + 1));
    }
    std::int32_t const block = shuffle(ahead.block, ahead.turn++ % lanes_in_a_warp);
    if (base::memory.has_block(block)) {
      async_copy_by_warp<page_bytes>(to, base::page_at(block, work), lane);
    } else if (lane == 0) {
      base::spoil_page(to, block, work.sequence);
    }
    std::int32_t const number = ahead.page;
    ahead.page += warps * schedule.splits();
    return number;
  }
  /// Starts to copy a batch, of which each lane has the address of a key or a value.
  __device__ __forceinline__ static void copy_tokens(unsigned char* to, T const* from, int lane) {
    constexpr int chunks = token_bytes / 16;  // of a key or a value
    auto const own = reinterpret_cast<std::uint64_t>(from);
#pragma unroll 4
    for (int i = 0; i < chunks; ++i) {
      int const which = lanes_in_a_warp * i + lane;
      int const row = which / chunks;  // keys and values take turns
      int const at = which % chunks * 16;
      std::uint64_t const source = shuffle(own, row / 2 + batch * (row % 2));
      async_copy_16(to + row / 2 * padded_bytes + row % 2 * token_bytes + at,
                    reinterpret_cast<void const*>(source + static_cast<std::uint64_t>(at)));
    }
  }
};

}  // namespace v0
}  // namespace tessera
