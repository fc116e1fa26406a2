// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `score_means`: score_chunks (program/offloaded_cache/score_chunks.hpp) by TMA and tensor cores, for landmarks that
/// are means, in bfloat16 or in codes, and for boxes, which are multiplied as two means. A landmark is loaded once for
/// all queries that share its key head, and one bulk copy loads the landmarks of neighbouring chunks.
///
/// For each chunk and key head the bytes of a landmark are read once, and 4 * group + 2 bytes are written and read: at
/// 128K tokens in chunks of 8, 8 key heads of 128 channels and 32 query heads 17.3 MB of codes (33.5 MB of bfloat16)
/// and 2.4 MB. On an H200 16 sequences take 86 us in codes, 0.79 of the read speed, and 143 us in bfloat16, 0.88. What
/// makes it fast:
///
/// - A multiprocessor has up to 192 KiB of landmarks in flight, twice what keeps the memory busy. Those of 16 chunks
///   arrive in half a microsecond, or in one.
/// - Issuing a copy takes about 120 cycles. One copy loads eight chunks, where a work item has all key heads; one copy
///   for each chunk took a quarter more time in codes.
/// - Queries and slots of the next work item are loaded while one is scored, and the states of sequences at the start:
///   waiting for them took another fifth. Scores of four queries are written together, so that lanes wait less.
/// - L2 keeps scores, which select_chunks reads, rather than landmarks: 6 us of both programs' 110.
///
/// Ping-pong schedules of two warpgroups do not work here: a warpgroup that skips the other's stages may be a whole
/// round of a barrier's phases behind. Copies are of whole 16 bytes: a line that does not begin at such a multiple is
/// copied with up to 12 bytes before and behind it.
///
/// Boxes in chunks of 8 are 67.1 MB: 16 sequences read 1.07 GB, in at least 236 us at 4.55 TB/s. A score that is NaN is
/// computed once more by the selector, since infinite keys make it one where the selector's score is none.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/attention/decode_fragments.cuh>
#include <tessera/program/offloaded_cache/detail/landmark_lines.cuh>
#include <tessera/program/offloaded_cache/detail/score_work.cuh>
#include <tessera/program/offloaded_cache/score_chunks.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/rows/lane_rows.cuh>
#include <tessera/tile/rows/weigh_rows.hpp>

namespace tessera {
inline namespace v0 {

/// Scores means or boxes. A work item is `blocks` neighbouring blocks of chunks of up to 8 key heads, with a warp for
/// each block and head. Rows: rows of queries, 4, 8 or 16; at least the number of queries that share a key head.
template <int Channels, int Rows, ChunkSelector S>
struct score_means {
  /// The portable program, whose members are the arguments.
  using call_type = score_chunks<bfloat16, S>;
  static constexpr int warps = 8;  ///< warps that multiply; one more warp issues copies
  static constexpr int lanes = 32 * (warps + 1);
  static constexpr int blocks_per_multiprocessor = 1;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool is_persistent = true;
  static constexpr int halves = Rows <= 8 ? 1 : 2;  ///< halves of 8 rows of queries
  static constexpr int tile = score_item::tile;     ///< chunks of a warp in a stage
  /// The pitch of a row of scores, so that rows are in different banks.
  static constexpr int row_floats = scored_chunks + 4;
  static constexpr int rows_together = Rows < 16 ? 4 : 2;  ///< rows whose scores are written at the same time
  /// How landmarks are multiplied.
  using lines_type = landmark_lines<Channels, S>;
  static constexpr int line_bytes = lines_type::bytes;  ///< bytes of a landmark
  /// Bytes of a stage: landmarks of all warps, and the gaps between them.
  static constexpr int stage_bytes = tile * (warps * line_bytes + lines_type::spare_bytes);
  static constexpr int stages = (222 * 1024 - warps * Rows * row_floats * 4) / stage_bytes;
  /// Whether a stage is given back only when its lines are multiplied, since registers do not hold all of a lane's
  /// lines and queries.
  static constexpr bool multiplies_first = halves * line_bytes > 512;
  static constexpr int half = 8;          ///< chunks of a tile that are neighbours in a stage
  static constexpr int most_known = 128;  ///< the most steps whose state a block loads at its start

  struct scratch_type {
    /// Landmarks by eight chunks, of all heads of a work item.
    alignas(128) unsigned char landmarks[stages][stage_bytes];
    float scores[warps][Rows][row_floats];  ///< scores of a warp's block of chunks
    stage_ring<stages> ring;                ///< of chunks
    score_step known[most_known];           ///< the state of the first steps
  };

  call_type call;           ///< extents, memory, step, selector and scale
  std::int32_t work_items;  ///< work items of all steps
  std::int32_t heads;       ///< key heads of a work item
  std::int32_t blocks;      ///< blocks of scored_chunks chunks of a work item
  std::int32_t key_heads;   ///< key heads of a step
  std::int32_t rows;        ///< queries that share a key head
  std::int32_t together;    ///< chunks of a copy: those of a half, if a work item has all heads, else 1
  std::int32_t pitch;       ///< bytes from a chunk's lines in a stage to the next one's
  std::int32_t half_pitch;  ///< bytes from a half's lines in a stage to the next half's
  fast_divisor by_sets;     ///< sets of key heads of a step, as a divisor
  fast_divisor by_ranges;   ///< work items along the longest sequence, as a divisor

  /// The program for a call of fewer than 2^31 groups.
  [[nodiscard]] static score_means of(call_type const& call, std::int64_t multiprocessors) {
    score_means made{};
    made.call = call;
    made.key_heads = static_cast<std::int32_t>(call.extents.key_heads);
    made.heads = min(made.key_heads, warps);
    made.rows = static_cast<std::int32_t>(call.extents.group());
    made.lay_out();
    divide_score_work(made, min(warps / made.heads, stage_bytes / (tile / half * made.half_pitch)), multiprocessors);
    return made;
  }

  /// Scores the work items of a block. The launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    if (group.lane < stages) {
      scratch.ring.full[group.lane].init(1);
      scratch.ring.empty[group.lane].init(32 * warps);
    }
    for (int at = group.lane; at < most_known && at < call.step.steps(); at += lanes) {
      scratch.known[at] = score_step_of(call, at);
    }
    fence_barrier_init();
    group.sync();
    int const warp = uniform(group.lane / 32);
    if (warp < warps) {
      multiply(scratch, warp, group.lane % 32);
    } else {
      produce(scratch, group.lane % 32);
    }
  }

 private:
  using softmax_type = tile_softmax<fast_natural_power>;
  using rows_type = lane_rows<float, rows_together, scored_chunks, cuda_warp>;  ///< scores that are written together
  using state_type = pipeline_state<stages>;
  using raw_type = typename lines_type::raw_type;
  using queries_type = typename lines_type::queries_type;

  /// Computes where lines of a stage begin.
  void lay_out() {
    int const bytes = heads * line_bytes;
    int const most_beyond = line_bytes % 16 == 0 ? 0 : 12;
    bool const are_neighbours = heads == key_heads;
    together = are_neighbours ? half : 1;
    pitch = are_neighbours ? bytes : divide_up(bytes + most_beyond, 16) * 16;
    half_pitch = divide_up(half * pitch + most_beyond, 128) * 128 + lines_type::gap(are_neighbours ? heads : 0);
  }

  /// Bytes from the multiple of 16 before an address to the address.
  __device__ __forceinline__ static int beyond(void const* address) {
    return line_bytes % 16 == 0 ? 0 : static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % 16);
  }

  /// The copying warp: each lane issues copies of the landmarks of some chunks, for all heads of the work item.
  __device__ __forceinline__ void produce(scratch_type& scratch, int lane) const {
    state_type state;
    for (std::int32_t number = static_cast<std::int32_t>(block_index()); number < work_items;
         number += static_cast<std::int32_t>(blocks_in_grid())) {
      score_item const work = score_item_of(*this, scratch.known, number);
      for (auto const at : pipelined(ring_filler(state), work.stages_of_it())) {
        shared_barrier& full = at.when_empty(scratch.ring);
        int bytes = 0;
        for (std::int32_t line = lane * together; line < blocks * tile; line += 32 * together) {
          bytes += copied_bytes(work, work.chunk_of(at.index, line));
        }
        bytes = static_cast<int>(sum_of_warp(static_cast<unsigned>(bytes)));
        if (lane == 0) {
          full.arrive_and_expect(bytes);
        }
        sync_warp();
        for (std::int32_t line = lane * together; line < blocks * tile; line += 32 * together) {
          std::int32_t const chunk = work.chunk_of(at.index, line);
          int const of_copy = copied_bytes(work, chunk);
          if (of_copy > 0) {
            unsigned char const* const from = score_line_of(call, work, chunk);
            load_bytes(scratch.landmarks[at.stage] + line / half * half_pitch + line % half * pitch,
                       from - beyond(from), of_copy, full, cache_policy::evict_first());
          }
        }
      }
    }
  }

  /// Bytes of the copy that begins with a chunk; 0 if the work item does not have the chunk.
  __device__ __forceinline__ int copied_bytes(score_item const& work, std::int32_t chunk) const {
    std::int32_t const count = min(work.end - chunk, together);
    int const bytes = (count - 1) * pitch + work.heads * line_bytes;
    return count > 0 ? divide_up(bytes + beyond(score_line_of(call, work, chunk)), 16) * 16 : 0;
  }

  __device__ __forceinline__ void multiply(scratch_type& scratch, int warp, int lane) const {
    raw_type raw[halves];
    queries_type queries[halves];
    score_queries held;
    state_type state;
    score_part next = part_at(scratch, static_cast<std::int32_t>(block_index()), warp, lane);
    bool is_new = load_score_queries(*this, next, held, raw, lane);
    for (std::int32_t number = static_cast<std::int32_t>(block_index()); number < work_items;
         number += static_cast<std::int32_t>(blocks_in_grid())) {
      score_part const part = next;
      if (is_new) {
#pragma unroll
        for (int i = 0; i < halves; ++i) {
          queries[i].make(raw[i], lane);
        }
      }
      next = part_at(scratch, number + static_cast<std::int32_t>(blocks_in_grid()), warp, lane);
      is_new = load_score_queries(*this, next, held, raw, lane);
      score(scratch, part, queries, state, warp, lane);
    }
  }
  __device__ __forceinline__ score_part part_at(scratch_type const& scratch, std::int32_t number, int warp,
                                                int lane) const {
    score_part part{};
    if (number < work_items) {
      part = score_part_of(*this, scratch.known, number, warp);
      if (!part.is_empty()) {
        look_up(part, lane);
      }
    }
    return part;
  }

  __device__ __forceinline__ void score(scratch_type& scratch, score_part const& part,
                                        queries_type const (&queries)[halves], state_type& state, int warp,
                                        int lane) const {
    std::int32_t const block = warp / heads;
    int const from = block * (tile / half) * half_pitch + (warp - block * heads) * line_bytes;
    for (pipeline_step const at : pipelined(ring_reader(scratch.ring, state), part.work.stages_of_it())) {
      bool const is_part = part.first + at.index * tile < part.end;
      lines_type lines;
      if (is_part) {
        load_lines(lines, scratch.landmarks[at.stage] + from, part.work, part.first + at.index * tile, lane);
        if constexpr (multiplies_first) {
          take(lines, queries, scratch.scores[warp], at.index * tile, lane);
        }
      }
      fence_async_proxy();
      scratch.ring.empty[at.stage].arrive();  // all lanes arrive after they have read
      if (is_part && !multiplies_first) {
        take(lines, queries, scratch.scores[warp], at.index * tile, lane);
      }
    }
    if (!part.is_empty()) {
      if constexpr (doubts_nans<lines_type>) {
        score_nans(part, scratch.scores[warp], lane);
      }
      finish(part, scratch.scores[warp], lane);
    }
    sync_warp();  // the next work item's scores overwrite these
  }

  /// Loads the slots, which say which chunks can be selected; nothing waits for them yet.
  __device__ __forceinline__ void look_up(score_part& part, int lane) const {
    auto const& all = call.memory.chunk_slots;
    std::int16_t const* const from = all.data + all.offset(part.work.row + part.first + lane, part.head);
#pragma unroll
    for (int i = 0; i < static_cast<int>(scored_chunks) / 32; ++i) {
      part.chunk_slots[i] = static_cast<std::int16_t>(chunk_slot::exact);
      if (part.first + 32 * i + lane < part.end) {
        part.chunk_slots[i] = from[32 * i * all.strides[0]];
      }
    }
  }

  /// The chunk of a tile that is the lane's first line, alternately of both halves; the lane's second line is four
  /// after it.
  __device__ __forceinline__ static int chunk_of_lane(int lane) {
    return lane / 8 + lane / 4 % 2 * half;
  }
  /// Loads lines of a tile whose first chunk is `first`; `from` is the line of that chunk.
  __device__ __forceinline__ void load_lines(lines_type& lines, unsigned char const* from, score_item const& work,
                                             std::int32_t first, int lane) const {
    unsigned char const* const line = from + lane / 4 % 2 * half_pitch + lane / 8 * pitch;
    if (together == half) {
      int const shift = beyond(score_line_of(call, work, first));
      lines.load(line + shift, line + 4 * pitch + shift, lane);
    } else {
      std::int32_t const chunk = first + chunk_of_lane(lane);
      lines.load(line + beyond(score_line_of(call, work, chunk)),
                 line + 4 * pitch + beyond(score_line_of(call, work, chunk + 4)), lane);
    }
  }

  /// Multiplies 16 chunks with all queries.
  __device__ __forceinline__ void take(lines_type const& lines, queries_type const (&queries)[halves],
                                       float (&kept)[Rows][row_floats], std::int32_t first, int lane) const {
    float scores[halves][4];
#pragma unroll
    for (int set = 0; set < halves; ++set) {
      lines.multiply(scores[set], queries[set]);
    }
#pragma unroll
    for (int set = 0; set < halves; ++set) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int const row = 8 * set + 2 * (lane % 4) + i % 2;
        if (row < rows) {
          kept[row][first + chunk_of_lane(lane) + i / 2 * 4] = scores[set][i];
        }
      }
    }
  }

  /// Scores chunks whose score is NaN as the portable program does. There are none where keys and queries are finite.
  __device__ __forceinline__ void score_nans(score_part const& part, float (&kept)[Rows][row_floats], int lane) const {
    sync_warp();
#pragma unroll 1
    for (int at = lane; at < rows * static_cast<int>(scored_chunks); at += 32) {
      int const row = at / static_cast<int>(scored_chunks);
      int const chunk = at % static_cast<int>(scored_chunks);
      if (part.first + chunk < part.end && is_nan(kept[row][chunk])) {
        kept[row][chunk] = score_by_selector(call, part.work, part.head * rows + row, part.head, part.first + chunk);
      }
    }
  }

  /// Writes scores, and the sums of their exponentials.
  __device__ __forceinline__ void finish(score_part const& part, float const (&kept)[Rows][row_floats],
                                         int lane) const {
    sync_warp();
    for (int first = 0; first < rows; first += rows_together) {
      finish_rows(part, kept, first, lane);
    }
  }
  /// Writes the scores and sums of some queries, whose shuffles overlap.
  __device__ __forceinline__ void finish_rows(score_part const& part, float const (&kept)[Rows][row_floats], int first,
                                              int lane) const {
    cuda_warp const group;
    auto const& scores = call.step.scores;
    float* const to = scores.data + scores.offset(part.work.row + part.first + lane, part.head, first);
    typename rows_type::sum_tile values;
    rows_type::each_with_row(group, values, [&](int row, int chunk, float& value) {
      bool const is_open = part.chunk_slots[chunk / 32] != static_cast<std::int16_t>(chunk_slot::exact);
      value = is_open ? call.scale * kept[first + row][chunk] : -infinity;
      if (first + row < rows && part.first + chunk < part.end) {
        to[chunk / 32 * 32 * scores.strides[0] + row * scores.strides[2]] = value;
      }
    });
    typename rows_type::template row_values<softmax_type::state_type> states;
    typename rows_type::template row_values<float> factors;
    weigh_rows<rows_type>(group, softmax_type{}, values, states, factors);
    rows_type::each_row_once(
        group,
        [&](int row, softmax_type::state_type const& state) {
          if (first + row < rows) {
            call.step.score_sums(part.work.at, part.first / scored_chunks, part.head * rows + first + row) = {
                state.reference, state.sum};
          }
        },
        states);
  }
};

}  // namespace v0
}  // namespace tessera
