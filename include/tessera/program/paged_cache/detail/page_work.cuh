// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `page_work`: what the programs that attend to pages share (program/paged_cache/attend_pages.cuh and
/// attend_pages_by_warps.cuh): what the lists say of a work item, the batches of its uncompressed tokens, and how a
/// warp adds a page or a batch to its columns. It copies nothing.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/attention/decode_schedule.cuh>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/cache_sequences.hpp>

namespace tessera {
inline namespace v0 {

/// The members and steps of programs whose blocks have `Warps` warps with columns. Columns: page_columns. T: the type
/// of queries and of uncompressed tokens.
template <class Columns, class T, class Result, int Warps>
struct page_work {
  static constexpr int channels = Columns::channels;
  static constexpr int page_tokens = cache_page_format::tokens;    ///< tokens of a page
  static constexpr int page_bytes = Columns::format.read_bytes();  ///< bytes that a layer reads of a page
  static constexpr int batch = 16;                                 ///< uncompressed tokens that a warp takes at a time
  static constexpr int token_bytes = static_cast<int>(sizeof(T)) * channels;  ///< bytes of a key or a value
  /// The pitch of a key and a value, so that rows are in different banks.
  static constexpr int padded_bytes = 2 * token_bytes + 16;
  static constexpr int most_listed = batch - 1 + page_tokens;  ///< the most retained tokens that wait

  /// The schedule of work items.
  using schedule_type = decode_schedule<channels, Warps, T, Result>;
  using split_type = decode_split<channels>;

  /// Retained tokens of a warp whose keys and values are not yet being loaded.
  struct token_list {
    std::int32_t row[most_listed + 1];    ///< their rows among those of the slot and head
    std::int32_t token[most_listed + 1];  ///< their numbers in the sequence
  };

  schedule_type schedule;
  cache_memory<T> memory;
  cache_sequences sequences;
  int layer;            ///< which layer of the part: 0 or 1
  float factor;         ///< the factor of scores: the softmax's scale and log2(e)
  status_word* status;  ///< where impossible sequences and blocks are reported

 protected:
  /// The length and pages of a sequence, and the pages of a work item.
  struct extent {
    std::int32_t length;     ///< tokens of the sequence
    std::int32_t pages;      ///< compressed pages of the sequence
    std::int32_t own_pages;  ///< those of the work item
  };
  /// A work item and what the lists say of it, loaded one work item ahead.
  struct listing {
    decode_work_item work;  ///< the work item
    std::int32_t length;    ///< tokens of its sequence
    std::int32_t pages;     ///< sealed pages of its sequence
    std::int32_t slot;      ///< the slot of its sequence
    std::int32_t block;     ///< the block of the lane's first page
  };
  static constexpr std::int32_t no_length = -1;  ///< the length of an impossible sequence

  /// The extent of a work item, found by a warp; no_length and no pages for an impossible sequence, which lane 0
  /// reports.
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
  /// The length that the lists give a sequence.
  [[nodiscard]] __device__ __forceinline__ std::int32_t listed_length(decode_work_item const& work) const {
    return sequences.lengths.data != nullptr ? sequences.lengths[work.sequence]
                                             : static_cast<std::int32_t>(schedule.results.shape.keys);
  }
  /// The sealed pages that the lists give a sequence.
  [[nodiscard]] __device__ __forceinline__ std::int32_t listed_pages(decode_work_item const& work) const {
    return sequences.pages.data != nullptr ? sequences.pages[work.sequence] : 0;
  }
  /// The slot that the lists give a sequence.
  [[nodiscard]] __device__ __forceinline__ std::int32_t listed_slot(decode_work_item const& work) const {
    return sequences.slots.data != nullptr ? sequences.slots[work.sequence] : work.sequence;
  }
  /// The number in the sequence of a work item's own page.
  [[nodiscard]] __device__ __forceinline__ std::int32_t work_page(decode_work_item const& work,
                                                                  std::int32_t own) const {
    return work.split + own * schedule.splits();
  }
  /// The block of a work item's own page; 0 beyond the table of blocks.
  [[nodiscard]] __device__ __forceinline__ std::int32_t block_of(decode_work_item const& work, std::int32_t own) const {
    auto const most = static_cast<std::int32_t>(sequences.blocks.extent(1));
    std::int32_t const page = work_page(work, min(own, most));
    return page < most ? sequences.blocks(work.sequence, page) : 0;
  }
  /// What the lists say of work item `number`, or of the last one.
  [[nodiscard]] __device__ __forceinline__ listing look_up(std::uint32_t number, std::int32_t own) const {
    decode_work_item const work = schedule.at(min(number, schedule.count - 1));
    return {work, listed_length(work), listed_pages(work), listed_slot(work), block_of(work, own)};
  }
  /// The bytes of a page that the program's layer reads.
  [[nodiscard]] __device__ __forceinline__ std::byte const* page_at(std::int32_t block,
                                                                    decode_work_item const& work) const {
    return memory.page(block, work.key_head) + memory.format.read_offset(layer);
  }

  /// Writes a header that no page has, in place of a page whose block is impossible, and reports it. One lane.
  __device__ __forceinline__ void spoil_page(unsigned char* page, std::int32_t block, std::int32_t sequence) const {
    sequence_fault const fault = memory.fault_of_block(block);
    detail::report_on_device(status, fault.code, sequence, fault.detail());
    int const header = Columns::parts_of(page, layer).header;
    *reinterpret_cast<cache_page_header*>(page + header) = {~std::uint64_t{0}, 0, spoiled_rows, 0.0F, 0.0F, {0, 0}};
  }
  static constexpr std::uint32_t spoiled_rows = 0xffffffffU;  ///< rows in the header of a page that is not there

  /// What a warp knows of the work item that it adds to its columns.
  struct item_state {
    std::int32_t length;               ///< tokens of the sequence, or no_length
    typename Columns::seen_type seen;  ///< tokens that each row sees
    std::int32_t listed;               ///< retained tokens in the list
  };

  /// The batches of the tail before the warp's first one: after the pages, batches go round among warps.
  [[nodiscard]] __device__ __forceinline__ static std::int32_t turns_until(std::int32_t next) {
    return (next % Warps + Warps) % Warps;
  }
  /// Begins a work item of a sequence of `state.length` tokens.
  __device__ __forceinline__ void begin_item(item_state& state, Columns& columns, decode_work_item const& work,
                                             std::uint32_t const (&words)[schedule_type::strips][2], int lane) const {
    schedule.find_seen(work, state.length, state.seen);
    state.listed = 0;
    columns.template begin<T>(words, factor, lane);
    if (state.length == no_length) {
      spoil(columns);
    }
  }
  /// Makes results of the columns NaN.
  __device__ __forceinline__ static void spoil(Columns& columns) {
    schedule_type::outputs_type::each_row(
        cuda_warp{}, [](int, decode_softmax::state_type& state) { state.sum = __int_as_float(0x7fffffff); },
        columns.columns.softmax);
  }

  /// Adds page `number` of the sequence, and lists its retained tokens.
  __device__ __forceinline__ void add_page(unsigned char const* page, token_list& list, item_state& state,
                                           Columns& columns, std::int32_t number, int lane) const {
    typename Columns::parts const parts = Columns::parts_of(page, layer);
    cache_page_header const& header = *reinterpret_cast<cache_page_header const*>(page + parts.header);
    std::uint64_t const retained = header.retained;
    std::int32_t const first = number * page_tokens;
    if (retained != 0) {
      if (header.rows == spoiled_rows) {
        spoil(columns);
      } else {
        list_retained(list, state, retained, static_cast<std::int32_t>(header.first_row), first, lane);
      }
    }
    bool const is_masked = retained != 0 || first + page_tokens > schedule.seen_by_all(state.length);
    typename Columns::page_mask mask{retained, state.seen, is_masked};
    schedule_type::outputs_type::each_row(
        cuda_warp{}, [first](int, std::int32_t& seen) { seen -= first; }, mask.seen);
    columns.take(page, parts, mask, lane);
  }
  /// Lists the retained tokens of a page, as the bits of `retained` say.
  __device__ __forceinline__ static void list_retained(token_list& list, item_state& state, std::uint64_t retained,
                                                       std::int32_t first_row, std::int32_t first_token, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int const token = lane + 32 * half;
      if ((retained >> token & 1U) != 0) {
        std::int32_t const before = __popcll(retained & ((std::uint64_t{1} << token) - 1));
        list.row[state.listed + before] = first_row + before;
        list.token[state.listed + before] = first_token + token;
      }
    }
    state.listed += __popcll(retained);
    sync_warp();
  }

  /// The lane's row of a batch of uncompressed tokens: of lanes below 16 a key, of the others a value. A batch that is
  /// not full repeats its last token, so that all are finite.
  struct batch_row {
    T const* from;        ///< the row's first channel
    std::int32_t token;   ///< the number of the token in the sequence
    std::int32_t tokens;  ///< tokens of the batch

    /// The number of the token, or one that no row sees where the batch has no such token.
    [[nodiscard]] __device__ __forceinline__ std::int32_t token_of(int lane) const {
      constexpr std::int32_t unseen = 0x7fffffff;
      return lane % batch < tokens ? token : unseen;
    }
  };

  /// Takes a batch from the end of the list, which is not empty.
  [[nodiscard]] __device__ __forceinline__ batch_row take_listed(token_list const& list, item_state& state,
                                                                 decode_work_item const& work, int lane) const {
    std::int32_t const tokens = min(batch, state.listed);
    state.listed -= tokens;
    int const at = state.listed + min(lane % batch, tokens - 1);
    T const* const from = memory.retained_row(listed_slot(work), work.key_head, list.row[at], layer, lane / batch);
    return {from, list.token[at], tokens};
  }
  /// The batch of the tail that begins with token `first` of `length`.
  [[nodiscard]] __device__ __forceinline__ batch_row tail_batch(decode_work_item const& work, std::int32_t first,
                                                                std::int32_t length, int lane) const {
    std::int32_t const tokens = min(batch, length - first);
    std::int32_t const token = first + min(lane % batch, tokens - 1);
    return {memory.tail_row(listed_slot(work), layer, lane / batch, work.key_head, token), token, tokens};
  }

  /// Adds a batch, of which the lane has the number of a token. `tokens`: its address in shared memory.
  __device__ __forceinline__ void add_batch(std::uint32_t tokens,
                                            std::uint32_t const (&words)[schedule_type::strips][2],
                                            item_state const& state, Columns& columns, std::int32_t const (&own)[2],
                                            int lane) const {
    typename Columns::template dense_tokens<T> const at{tokens, padded_bytes};
    columns.take_tokens(at, words, factor, own, state.seen, lane);
  }
};

}  // namespace v0
}  // namespace tessera
