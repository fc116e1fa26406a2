// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `score_tiles`: score_chunks (program/offloaded_cache/score_chunks.hpp) by cp.async and tensor cores, for what
/// score_means (score_chunks.cuh) scores on sm_90: means, in bfloat16 or in codes, and boxes. For sm_80 and later.
///
/// Lines of 16 chunks of all of a work item's heads are a stage of a ring, which all lanes of a thread block fill; a
/// warp multiplies those of a head. A lane has the scores of two chunks and two queries, or four, and adds up their
/// exponentials where they are; those of 32 chunks go through shared memory, and are written side by side. So shared
/// memory has little but lines.
///
/// Bytes are those of score_means: at 128K tokens in chunks of 8, 8 key heads of 128 channels and 32 query heads 17.3
/// MB of codes a sequence, 33.5 MB of bfloat16 or 67.1 MB of boxes, and 2.1 MB of scores. Instructions of a warp for 16
/// chunks: 140 for 8 queries of 128 channels in codes, and 85 that copy; for a block of 128 chunks 660 besides.
///
/// Measured on an H200 by the code for sm_80, 16 sequences of 128K tokens, us, and the part of the read speed: codes
/// 101 (0.67), bfloat16 145 (0.85), boxes 316 with four stages (0.75), and 301 with five and scores written by each
/// lane (0.80). By a ring by hand codes take 102.7 and boxes 315.8, and by late_refiller, with five stages of boxes,
/// 101.7 and 322.9; bfloat16 147 by both. In codes copies alone take 80, and all but the writing of scores 90.
/// What was tried there: addresses computed anew for each stage and each line 117; scores written by each lane, to 32
/// neighbouring bytes at a time, 103; stages of 62, 81 or 98 KiB, thread blocks of four warps, and copies of 512
/// neighbouring bytes by each warp made no difference of more than 2. The portable program takes 1842.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/program/attention/decode_fragments.cuh>
#include <tessera/program/offloaded_cache/detail/landmark_lines.cuh>
#include <tessera/program/offloaded_cache/detail/score_work.cuh>
#include <tessera/program/offloaded_cache/score_chunks.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/row_tile.cuh>
#include <tessera/tile/cuda/sm_80/refilled_ring.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/rows/settle_parts.hpp>
#include <tessera/tile/rows/weigh_rows.hpp>

namespace tessera {
inline namespace v0 {

/// Scores means or boxes. A warp has a block of chunks of a key head of a work item. Rows: rows of queries, 8 or 16; at
/// least the number of queries that share a key head.
template <int Channels, int Rows, ChunkSelector S>
struct score_tiles {
  /// The portable program, whose members are the arguments.
  using call_type = score_chunks<bfloat16, S>;
  /// How landmarks are multiplied.
  using lines_type = landmark_lines<Channels, S>;
  static constexpr int line_bytes = lines_type::bytes;                     ///< bytes of a landmark
  static constexpr int warps = line_bytes <= 136 ? 8 : 1024 / line_bytes;  ///< warps, whose lines are a kilobyte
  static constexpr int lanes = 32 * warps;
  static constexpr int blocks_per_multiprocessor = 2;
  static constexpr int from_architecture = 800;
  static constexpr int before_architecture = 10000;
  static constexpr bool is_persistent = true;
  static constexpr int halves = Rows / 8;        ///< halves of 8 rows of queries
  static constexpr int tile = score_item::tile;  ///< chunks of a warp in a stage
  /// Bytes of a stage: landmarks of all warps, and the gaps between them.
  static constexpr int stage_bytes = tile * (warps * line_bytes + lines_type::spare_bytes);
  static constexpr int most_known = 128;  ///< the most steps whose state a block loads at its start
  static constexpr int together = 32;     ///< chunks whose scores are written together
  /// The pitch of a row of scores, so that rows are in different banks.
  static constexpr int row_floats = together + 4;
  /// Bytes of shared memory. Two blocks have room on a multiprocessor of sm_80, but for those of boxes, which take what
  /// a block of sm_86 has, since two warps have fewer bytes on their way.
  static constexpr int most_bytes = (line_bytes <= 256 ? 81 : 98) * 1024 - 512;
  /// Stages of a thread block, of which one is read while the others are on their way.
  static constexpr int stages = (most_bytes - warps * Rows * row_floats * 4 - most_known * 8) / stage_bytes;
  static_assert(stages >= 2 && Rows % 8 == 0);

  struct scratch_type {
    alignas(128) unsigned char landmarks[stages][stage_bytes];  ///< of chunks, all heads of a work item of each
    float scores[warps][Rows][row_floats];                      ///< scores that a warp writes next
    score_step known[most_known];                               ///< the state of the first steps
  };

  call_type call;            ///< extents, memory, step, selector and scale
  std::int32_t work_items;   ///< work items of all steps
  std::int32_t heads;        ///< key heads of a work item
  std::int32_t blocks;       ///< blocks of scored_chunks chunks of a work item
  std::int32_t key_heads;    ///< key heads of a step
  std::int32_t rows;         ///< queries that share a key head
  std::int32_t pitch;        ///< bytes from a chunk's lines in a stage to the next one's
  std::int32_t chunk_bytes;  ///< bytes from a chunk's lines in global memory to the next one's
  fast_divisor by_sets;      ///< sets of key heads of a step, as a divisor
  fast_divisor by_ranges;    ///< work items along the longest sequence, as a divisor

  /// The program for a call of fewer than 2^31 groups.
  [[nodiscard]] static score_tiles of(call_type const& call, std::int64_t multiprocessors) {
    score_tiles made{};
    made.call = call;
    made.key_heads = static_cast<std::int32_t>(call.extents.key_heads);
    made.heads = min(made.key_heads, warps);
    made.rows = static_cast<std::int32_t>(call.extents.group());
    made.pitch = lines_type::pitch(made.heads * line_bytes + most_beyond);
    made.chunk_bytes = static_cast<std::int32_t>(call.memory.landmarks.strides[0] *
                                                 static_cast<std::int64_t>(sizeof(typename call_type::element_type)));
    divide_score_work(made, min(warps / made.heads, stage_bytes / (tile * made.pitch)),
                      blocks_per_multiprocessor * multiprocessors);
    return made;
  }

  /// Scores the work items of a block. The launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    for (int at = group.lane; at < most_known && at < call.step.steps(); at += lanes) {
      scratch.known[at] = score_step_of(call, at);
    }
    group.sync();
    score_all(group, scratch);
  }

 private:
  using raw_type = typename lines_type::raw_type;
  using queries_type = typename lines_type::queries_type;
  using softmax_type = relative_softmax<fast_natural_power>;
  using rows_type = row_tile<bfloat16, shape<8, tile, 16>, cuda_warp>;  ///< a row is a query, a column a chunk
  /// What a lane knows of its scores.
  using states_type = typename rows_type::template row_values<softmax_type::state_type>;
  static constexpr int most_beyond = line_bytes % 16 == 0 ? 0 : 12;  ///< bytes between multiples of 16 and lines
  static constexpr int copiers = 16;                                 ///< lanes that copy a chunk's lines together

  /// Bytes from the multiple of 16 before an address to the address.
  __device__ __forceinline__ static int beyond(void const* address) {
    return most_beyond == 0 ? 0 : static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % 16);
  }

  /// Which stage is filled next, of all work items of the thread block.
  struct filling {
    std::int32_t number;        ///< of the work item
    std::int32_t left;          ///< stages of the work item that are left; -1 behind the last work item
    std::int32_t row_bytes;     ///< bytes of a chunk's lines
    std::int32_t before;        ///< chunks from the lane's first one of the stage to the end of the work item's
    unsigned char const* from;  ///< the first of the lane's lines
  };
  /// Starts with the first stage of a work item.
  __device__ __forceinline__ void enter(scratch_type const& scratch, filling& at, std::int32_t number, int lane) const {
    at.number = number;
    at.left = -1;
    if (number < work_items) {
      score_item const work = score_item_of(*this, scratch.known, number);
      at.left = work.stages_of_it();
      at.row_bytes = work.heads * line_bytes;
      at.before = work.end - work.first - lane / copiers;
      at.from = score_line_of(call, work, work.first + lane / copiers);
    }
  }
  /// Starts to copy the next stage; nothing behind the last one.
  __device__ __forceinline__ void fill(scratch_type& scratch, filling& at, int stage, int lane) const {
    while (at.left == 0) {
      enter(scratch, at, at.number + static_cast<std::int32_t>(blocks_in_grid()), lane);
    }
    if (at.left > 0) {
      copy_stage(at, scratch.landmarks[stage] + lane / copiers * pitch, lane);
      at.from += tile * std::int64_t{chunk_bytes};
      at.before -= tile;
      --at.left;
    }
  }
  /// Copies the lane's lines; those of a block of chunks follow each other, and so do blocks.
  __device__ __forceinline__ void copy_stage(filling const& at, unsigned char* to, int lane) const {
    constexpr int together = lanes / copiers;  // lines
#pragma unroll 1
    for (int line = 0; line < blocks * tile; line += together) {
      int const chunk = line / tile * static_cast<int>(scored_chunks) + line % tile;
      if (chunk < at.before) {
        copy_line(to + line * pitch, at.from + std::int64_t{chunk} * chunk_bytes, at.row_bytes, lane % copiers * 16);
      }
    }
  }
  /// Copies a chunk's lines: the lane's 16 bytes, which begin at `own`, of each 16 lanes' 256.
  __device__ __forceinline__ static void copy_line(unsigned char* to, unsigned char const* from, int bytes, int own) {
    constexpr int most_copies = divide_up(warps * line_bytes + most_beyond, 16 * copiers);
    int const shift = beyond(from);
    int const left = bytes + shift - own;
#pragma unroll
    for (int i = 0; i < most_copies; ++i) {
      if (i * copiers * 16 < left) {
        async_copy_16_of_line(to + own + i * copiers * 16, from - shift + own + i * copiers * 16);
      }
    }
  }

  /// What a lane keeps while it scores a part.
  struct tally {
    std::uint32_t exact;         ///< which of the lane's chunks are exact: see exact_ones
    int line;                    ///< where the lane's first line begins in a stage
    float* to;                   ///< the score of chunk number `lane` of those that are written next
    states_type states[halves];  ///< sums of exponentials of scores less the largest one
  };

  __device__ __forceinline__ void score_all(cuda_block<lanes> const& group, scratch_type& scratch) const {
    filling filled{};
    enter(scratch, filled, static_cast<std::int32_t>(block_index()), group.lane);
    auto const begin = [&](int into) { fill(scratch, filled, into, group.lane); };
    late_refiller<stages, cuda_block<lanes>, decltype(begin)> ring(group, begin);
    ring.fill_all();
    int const warp = uniform(group.lane / 32);
    int const lane = group.lane % 32;
    raw_type raw[halves];
    queries_type queries[halves];
    int const own_line = first_line(warp) + lane / 4 * pitch;
    score_queries held;
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
      tally kept = start(part, own_line, lane);
      next = part_at(scratch, number + static_cast<std::int32_t>(blocks_in_grid()), warp, lane);
      is_new = load_score_queries(*this, next, held, raw, lane);
#pragma unroll 1
      for (pipeline_step const at : pipelined(ring, part.work.stages_of_it())) {
        if (part.first + at.index * tile < part.end) {
          score_tile(part, at.index, scratch.landmarks[at.stage], queries, kept, scratch.scores[warp], lane);
        }
      }
      finish(part, kept, lane);
    }
  }

  /// The bytes of a stage before the first line of a warp.
  __device__ __forceinline__ int first_line(int warp) const {
    std::int32_t const block = warp / heads;
    return block * tile * pitch + (warp - block * heads) * line_bytes;
  }
  __device__ __forceinline__ score_part part_at(scratch_type const& scratch, std::int32_t number, int warp,
                                                int lane) const {
    score_part part{};
    if (number < work_items) {
      part = score_part_of(*this, scratch.known, number, warp);
      look_up(part, lane);
    }
    return part;
  }
  /// Loads the slots; nothing waits for them yet.
  __device__ __forceinline__ void look_up(score_part& part, int lane) const {
    auto const& all = call.memory.chunk_slots;
    std::int16_t const* const from = all.data + all.offset(part.work.row + part.first + lane, part.head);
#pragma unroll
    for (int i = 0; i < static_cast<int>(scored_chunks) / 32; ++i) {
      if (part.first + 32 * i + lane < part.end) {
        part.chunk_slots[i] = from[32 * i * all.strides[0]];
      }
    }
  }

  __device__ __forceinline__ tally start(score_part const& part, int own_line, int lane) const {
    auto const& scores = call.step.scores;
    tally kept{};
    kept.exact = exact_ones(part, lane);
    // Lines begin at multiples of 4 bytes, so that those eight chunks away have the same number of bytes before them.
    kept.line = own_line + beyond(score_line_of(call, part.work, part.first + lane / 4));
    kept.to = scores.data + scores.offset(part.work.row + part.first + lane, part.head, 0);
#pragma unroll
    for (states_type& states : kept.states) {
      rows_type::each_row(
          cuda_warp{}, [](int, softmax_type::state_type& state) { state = softmax_type{}.identity(); }, states);
    }
    return kept;
  }
  /// Of the lane's chunks those that are exact. In tile t they are chunks lane / 4 and lane / 4 + 8; bit
  /// 16 (t % 2) + t / 2 is the first one's, and that 8 bits above the second one's.
  __device__ __forceinline__ static std::uint32_t exact_ones(score_part const& part, int lane) {
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < static_cast<int>(scored_chunks) / 32; ++i) {
      std::uint32_t const exact = ballot_of_warp(part.chunk_slots[i] == static_cast<std::int16_t>(chunk_slot::exact));
      bits |= (exact >> lane / 4 & 0x01010101U) << i;
    }
    return bits;
  }

  /// Scores 16 chunks with all queries.
  __device__ __forceinline__ void score_tile(score_part const& part, std::int32_t number, unsigned char const* stage,
                                             queries_type const (&queries)[halves], tally& kept,
                                             float (&rows_of_scores)[Rows][row_floats], int lane) const {
    std::int32_t const first = part.first + number * tile + lane / 4;
    lines_type lines;
    lines.load(stage + kept.line, stage + kept.line + 8 * pitch, lane);
    typename rows_type::sum_tile scores[halves];
#pragma unroll
    for (int set = 0; set < halves; ++set) {
      lines.multiply(scores[set].values[0][0], queries[set]);
    }
    if constexpr (doubts_nans<lines_type>) {
      score_nans(part, first, scores, lane);
    }
    cuda_warp const group;
    std::uint32_t const exact = kept.exact >> (number % 2 * 16 + number / 2);
    bool const are_open[2] = {first < part.end && (exact & 1U) == 0, first + 8 < part.end && (exact >> 8 & 1U) == 0};
#pragma unroll
    for (int set = 0; set < halves; ++set) {
      rows_type::each_with_row(group, scores[set], [&](int query, int chunk, float& score) {
        score = are_open[chunk / 8] ? call.scale * score : -infinity;
        rows_of_scores[8 * set + query][number * tile % together + chunk] = score;
      });
      typename rows_type::template row_values<float> factors;
      weigh_lanes<rows_type>(group, softmax_type{}, scores[set], kept.states[set], factors);
    }
    std::int32_t const end = (number + 1) * tile;
    if (end % together == 0 || part.first + end >= part.end) {
      write(rows_of_scores, part.first + number * tile / together * together + lane < part.end, kept.to);
      kept.to += together;
    }
  }
  /// Writes a chunk's scores, if there is one.
  __device__ __forceinline__ void write(float (&rows_of_scores)[Rows][row_floats], bool is_there, float* to) const {
    std::int64_t const apart = call.step.scores.strides[2];
    int const lane = cuda_warp{}.lane;
    sync_warp();
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      if (row < rows && is_there) {
        to[row * apart] = rows_of_scores[row][lane];
      }
    }
    sync_warp();  // the next scores overwrite these
  }
  /// Scores chunks whose score is NaN as the portable program does. There are none where keys and queries are finite.
  __device__ __forceinline__ void score_nans(score_part const& part, std::int32_t first,
                                             typename rows_type::sum_tile (&scores)[halves], int lane) const {
    auto const score_of = [&](int i) -> float& { return scores[i / 4].values[0][0][i % 4]; };
    std::uint32_t are_nan = 0;
#pragma unroll
    for (int i = 0; i < 4 * halves; ++i) {
      bool const is_there = first + i % 4 / 2 * 8 < part.end && i / 4 * 8 + 2 * (lane % 4) + i % 2 < rows;
      are_nan |= is_there && is_nan(score_of(i)) ? 1U << i : 0U;
    }
#pragma unroll 1
    for (int at = 0; are_nan >> at != 0; ++at) {
      if ((are_nan >> at & 1U) != 0) {
        std::int64_t const query = part.head * rows + at / 4 * 8 + 2 * (lane % 4) + at % 2;
        float const score = score_by_selector(call, part.work, query, part.head, first + at % 4 / 2 * 8);
#pragma unroll
        for (int i = 0; i < 4 * halves; ++i) {
          score_of(i) = i == at ? score : score_of(i);
        }
      }
    }
  }

  /// Writes the sums of exponentials of a part.
  __device__ __forceinline__ void finish(score_part const& part, tally& kept, int lane) const {
    if (part.is_empty()) {
      return;
    }
    using lane_part = row_part<softmax_type::state_type, 0>;
    cuda_warp const group;
#pragma unroll
    for (int set = 0; set < halves; ++set) {
      typename rows_type::template row_values<lane_part> parts;
      rows_type::each_row(
          group, [](int, softmax_type::state_type const& state, lane_part& own) { own = {state}; }, kept.states[set],
          parts);
      merge_part_lanes<rows_type>(group, part_reducer<softmax_type, lane_part>{}, parts);
      rows_type::each_row_once(
          group,
          [&](int query, lane_part const& all) {
            int const row = 8 * set + query;
            if (row < rows) {
              call.step.score_sums(part.work.at, part.first / scored_chunks, part.head * rows + row) = {
                  all.state.reference, all.state.sum};
            }
          },
          parts);
    }
  }
};

}  // namespace v0
}  // namespace tessera
