// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `score_means`: score_chunks (program/score_chunks.hpp) for landmarks that are means, in bfloat16 or in codes, by the
/// copy engine and tensor cores. A landmark is read once for all queries that share its key head, and landmarks of
/// neighbouring chunks in one piece.
///
/// For each chunk and key head the bytes of a landmark are read, once, and 4 * group + 2 written and read: at 128K
/// tokens in chunks of 8, 8 key heads of 128 channels and 32 query heads 33.5 MB of bfloat16 or 17.3 MB of codes, and
/// 2.4 MB. A multiprocessor has up to 192 KiB of landmarks on their way, twice what it takes to keep the memory busy.
/// Of 16 chunks, which arrive in a microsecond or half of one, a warp needs 8 products, and makes of 128 scores at a
/// time what is left to do, by all lanes. On an H200 16 sequences take 147 us in bfloat16, 0.79 of the read speed.
/// Works for two sides of warps in turn are not the way: a side that skips the other's stages may be a whole round of a
/// barrier's phases behind.
///
/// Copies are of whole 16 bytes: lines that do not begin at such a multiple are copied with what is before and behind
/// them, up to 12 bytes each.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/known_divisor.hpp>
#include <tessera/program/landmark_lines.cuh>
#include <tessera/program/score_chunks.hpp>
#include <tessera/tile/cuda/barrier.cuh>
#include <tessera/tile/cuda/bulk_tensor.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/ring_place.cuh>

namespace tessera {
inline namespace v0 {

/// A work is `blocks` neighbouring blocks of chunks of up to 8 key heads, a warp for each of both. Rows: of queries, 4,
/// 8 or 16; at least those that share a key head.
template <int Channels, int Rows, ChunkSelector S>
struct score_means {
  /// The portable program, whose members say what is to be done.
  using call_type = score_chunks<bfloat16, S>;
  static constexpr int warps = 8;  ///< that multiply; one more starts copies
  static constexpr int lanes = 32 * (warps + 1);
  static constexpr int blocks_per_multiprocessor = 1;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool is_persistent = true;
  static constexpr int halves = Rows <= 8 ? 1 : 2;      ///< of 8 rows of queries
  static constexpr int tile = 16;                       ///< chunks of a warp that are in a stage
  static constexpr int row_floats = scored_chunks + 4;  ///< of scores: so that rows are in different banks
  /// How landmarks are multiplied.
  using lines_type = landmark_lines<Channels, S>;
  static constexpr int line_bytes = lines_type::bytes;  ///< of a landmark
  /// Of a stage: landmarks of all warps, and what is between them.
  static constexpr int stage_bytes = tile * (warps * line_bytes + lines_type::spare_bytes);
  static constexpr int stages = (222 * 1024 - warps * Rows * row_floats * 4) / stage_bytes;

  struct scratch_type {
    /// Chunk by chunk, of all heads of a work.
    alignas(128) unsigned char landmarks[stages][stage_bytes];
    float scores[warps][Rows][row_floats];  ///< of a warp's block of chunks
    shared_barrier full[stages];
    shared_barrier empty[stages];
  };

  call_type call;           ///< extents, memory, step, selector and scale
  std::int32_t works;       ///< of all steps
  std::int32_t heads;       ///< key heads of a work
  std::int32_t blocks;      ///< of scored_chunks chunks, of a work
  std::int32_t key_heads;   ///< of a step
  std::int32_t rows;        ///< queries that share one
  known_divisor by_sets;    ///< of so many key heads
  known_divisor by_places;  ///< of so many blocks, of the longest sequence

  /// Of fewer than 2^31 groups.
  [[nodiscard]] static score_means of(call_type const& call, std::int64_t multiprocessors) {
    const std::int64_t together = min(call.extents.key_heads, std::int64_t{warps});
    const std::int64_t sets = divide_up(call.extents.key_heads, together);
    const std::int64_t single = call.step.steps() * sets * call.blocks();
    const std::int64_t fitting =
        min(warps / together, stage_bytes / (tile * lines_type::pitch(static_cast<int>(together))));
    const std::int64_t neighbours = clamp(single / multiprocessors, std::int64_t{1}, fitting);
    const std::int64_t places = divide_up(call.blocks(), neighbours);
    return {call,
            static_cast<std::int32_t>(call.step.steps() * sets * places),
            static_cast<std::int32_t>(together),
            static_cast<std::int32_t>(neighbours),
            static_cast<std::int32_t>(call.extents.key_heads),
            static_cast<std::int32_t>(call.extents.group()),
            known_divisor::of(static_cast<std::uint32_t>(sets)),
            known_divisor::of(static_cast<std::uint32_t>(places))};
  }

  /// The launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    if (group.lane < stages) {
      scratch.full[group.lane].init(1);
      scratch.empty[group.lane].init(warps);
    }
    fence_barrier_init();
    group.sync();
    const int warp = __shfl_sync(0xffffffffU, group.lane / 32, 0);
    if (warp < warps) {
      multiply(scratch, warp, group.lane % 32);
    } else {
      bring(scratch, group.lane % 32);
    }
  }

 private:
  using place_type = ring_place<stages>;
  using queries_type = typename lines_type::queries_type;

  /// What is known of a step, read where another one begins.
  struct known_step {
    std::int32_t at = -1;
    std::int32_t row;     ///< of the sequence's first chunk
    std::int32_t chunks;  ///< of the sequence
  };
  struct work_type {
    std::int32_t at;     ///< step
    std::int32_t head;   ///< the first one
    std::int32_t heads;  ///< how many
    std::int32_t row;    ///< of the sequence's first chunk
    std::int32_t first;  ///< chunk
    std::int32_t end;    ///< of chunks; none, if not after the first one

    /// Stages of the ring that it takes.
    __device__ __forceinline__ std::int32_t stages_of_it() const {
      return first < end ? divide_up(min(end - first, static_cast<std::int32_t>(scored_chunks)), tile) : 0;
    }
  };
  __device__ __forceinline__ work_type work_at(std::int32_t number, known_step& known) const {
    const auto all = static_cast<std::uint32_t>(number);
    const std::uint32_t of_set = by_sets.quotient(all);
    const auto at = static_cast<std::int32_t>(by_places.quotient(of_set));
    const auto set = static_cast<std::int32_t>(all - of_set * by_sets.divisor);
    const auto place = static_cast<std::int32_t>(of_set - static_cast<std::uint32_t>(at) * by_places.divisor);
    if (at != known.at) {
      const std::int64_t sequence = call.step.sequence(call.extents, call.memory.sequences, at);
      known = {at, 0, 0};
      if (sequence >= 0) {
        known.row = call.memory.sequences[sequence].first;
        known.chunks = call.memory.sequences[sequence].chunks;
      }
    }
    const std::int32_t first = place * blocks * static_cast<std::int32_t>(scored_chunks);
    return {at,        set * heads, min(heads, key_heads - set * heads),
            known.row, first,       min(first + blocks * static_cast<std::int32_t>(scored_chunks), known.chunks)};
  }
  /// Bytes from a chunk's landmarks in a stage to the next one's.
  __device__ __forceinline__ std::int32_t pitch() const { return lines_type::pitch(heads); }
  /// Of all heads of a work's chunk.
  __device__ __forceinline__ unsigned char const* line_of(work_type const& work, std::int32_t chunk) const {
    const auto& landmarks = call.memory.landmarks;
    return reinterpret_cast<unsigned char const*>(landmarks.data + landmarks.offset(work.row, work.head, 0) +
                                                  chunk * landmarks.strides[0]);
  }
  /// Bytes from a multiple of 16 to an address.
  __device__ __forceinline__ static int beyond(void const* address) {
    return line_bytes % 16 == 0 ? 0 : static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % 16);
  }

  /// A lane starts copies of the landmarks of some chunks, of all heads of the work.
  __device__ __forceinline__ void bring(scratch_type& scratch, int lane) const {
    place_type place;
    known_step known;
    for (std::int32_t number = static_cast<std::int32_t>(blockIdx.x); number < works;
         number += static_cast<std::int32_t>(gridDim.x)) {
      const work_type work = work_at(number, known);
      for (std::int32_t stage = 0; stage < work.stages_of_it(); ++stage) {
        scratch.empty[place.stage].wait(place.phase ^ 1U);
        int bytes = 0;
        for (std::int32_t line = lane; line < blocks * tile; line += 32) {
          bytes += copied_bytes(work, chunk_of(work, stage, line));
        }
        bytes = static_cast<int>(__reduce_add_sync(0xffffffffU, static_cast<unsigned>(bytes)));
        if (lane == 0) {
          scratch.full[place.stage].arrive_and_expect(bytes);
        }
        __syncwarp();
        for (std::int32_t line = lane; line < blocks * tile; line += 32) {
          const std::int32_t chunk = chunk_of(work, stage, line);
          if (chunk < work.end) {
            unsigned char const* const from = line_of(work, chunk);
            load_bytes(scratch.landmarks[place.stage] + line * pitch(), from - beyond(from), copied_bytes(work, chunk),
                       scratch.full[place.stage]);
          }
        }
        place.advance();
      }
    }
  }
  __device__ __forceinline__ static std::int32_t chunk_of(work_type const& work, std::int32_t stage,
                                                          std::int32_t line) {
    return work.first + line / tile * static_cast<std::int32_t>(scored_chunks) + stage * tile + line % tile;
  }

  /// Of a chunk; none, if it is not one of the work.
  __device__ __forceinline__ int copied_bytes(work_type const& work, std::int32_t chunk) const {
    return chunk < work.end ? divide_up(work.heads * line_bytes + beyond(line_of(work, chunk)), 16) * 16 : 0;
  }

  /// A warp's part of a work: some chunks of a head.
  struct part_type {
    std::int64_t at;
    std::int64_t row;
    std::int32_t head;
    std::int32_t first;
    std::int32_t end;
  };

  __device__ __forceinline__ void multiply(scratch_type& scratch, int warp, int lane) const {
    const std::int32_t block = warp / heads;
    const std::int32_t head = warp - block * heads;
    queries_type queries[halves];
    std::int32_t queries_of[2] = {-1, -1};  ///< step and head
    place_type place;
    known_step known;
    for (std::int32_t number = static_cast<std::int32_t>(blockIdx.x); number < works;
         number += static_cast<std::int32_t>(gridDim.x)) {
      const work_type work = work_at(number, known);
      const std::int32_t first = work.first + block * static_cast<std::int32_t>(scored_chunks);
      const bool is_part = block < blocks && head < work.heads;
      const part_type part{work.at, work.row, work.head + head, first,
                           is_part ? min(first + static_cast<std::int32_t>(scored_chunks), work.end) : first};
      std::int16_t places[scored_chunks / 32];
      if (part.first < part.end) {
        if (queries_of[0] != part.at || queries_of[1] != part.head) {
          load_queries(part, queries, lane);
          queries_of[0] = work.at;
          queries_of[1] = part.head;
        }
        look_up(part, places, lane);
      }
      for (std::int32_t stage = 0; stage < work.stages_of_it(); ++stage) {
        scratch.full[place.stage].wait(place.phase);
        if (part.first + stage * tile < part.end) {
          unsigned char const* const lines =
              scratch.landmarks[place.stage] + block * tile * pitch() + head * line_bytes;
          lines_type found;
          load_lines(found, lines, work, part.first + stage * tile + lane / 4, lane);
          take(found, queries, scratch.scores[warp], stage * tile, lane);
        }
        __syncwarp();
        if (lane == 0) {
          scratch.empty[place.stage].arrive();
        }
        place.advance();
      }
      if (part.first < part.end) {
        finish(part, places, scratch.scores[warp], lane);
      }
      __syncwarp();  // the next work's scores come to the same place
    }
  }

  __device__ __forceinline__ void load_queries(part_type const& part, queries_type (&queries)[halves], int lane) const {
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      const int row = lane / 4 + 8 * half;
      const std::int64_t query = part.head * rows + row;
      queries[half].load(row < rows ? &call.step.queries(part.at, query, 0) : nullptr, lane);
    }
  }
  /// Reads what says which chunks can be selected; nothing waits for it yet.
  __device__ __forceinline__ void look_up(part_type const& part, std::int16_t (&places)[scored_chunks / 32],
                                          int lane) const {
    const auto& all = call.memory.places;
    std::int16_t const* const from = all.data + all.offset(part.row + part.first + lane, part.head);
#pragma unroll
    for (int i = 0; i < static_cast<int>(scored_chunks) / 32; ++i) {
      places[i] = static_cast<std::int16_t>(chunk_place::exact);
      if (part.first + 32 * i + lane < part.end) {
        places[i] = from[32 * i * all.strides[0]];
      }
    }
  }

  /// Of `chunk` and the eighth one after it; `lines`: of the tile's first chunk.
  __device__ __forceinline__ void load_lines(lines_type& found, unsigned char const* lines, work_type const& work,
                                             std::int32_t chunk, int lane) const {
    unsigned char const* const first = lines + lane / 4 * pitch();
    found.load(first + beyond(line_of(work, chunk)), first + 8 * pitch() + beyond(line_of(work, chunk + 8)), lane);
  }

  /// Products of 16 chunks with all queries.
  __device__ __forceinline__ void take(lines_type const& lines, queries_type const (&queries)[halves],
                                       float (&kept)[Rows][row_floats], std::int32_t first, int lane) const {
    float scores[halves][4];
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      lines.multiply(scores[half], queries[half]);
    }
#pragma unroll
    for (int half = 0; half < halves; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 8 * half + 2 * (lane % 4) + i % 2;
        if (row < rows) {
          kept[row][first + lane / 4 + i / 2 * 8] = scores[half][i];
        }
      }
    }
  }

  /// Writes scores, and the sums of their exponentials.
  __device__ __forceinline__ void finish(part_type const& part, std::int16_t const (&places)[scored_chunks / 32],
                                         float const (&kept)[Rows][row_floats], int lane) const {
    constexpr int each = static_cast<int>(scored_chunks) / 32;
    __syncwarp();
    const auto& scores = call.step.scores;
    float* const to = scores.data + scores.offset(part.row + part.first + lane, part.head, 0);
#pragma unroll 4
    for (int row = 0; row < rows; ++row) {
      float values[each];
      float largest = -infinity;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const bool is_open = places[i] != static_cast<std::int16_t>(chunk_place::exact);
        values[i] = is_open ? call.scale * kept[row][32 * i + lane] : -infinity;
        if (part.first + 32 * i + lane < part.end) {
          to[32 * i * scores.strides[0] + row * scores.strides[2]] = values[i];
        }
        largest = fmaxf(largest, values[i]);
      }
      largest = detail::warp_reduce(lane, largest, larger_float{});
      const float reference = largest == -infinity ? 0.0F : largest;
      float total = 0.0F;
#pragma unroll
      for (const float value : values) {
        total += fast_exp2((value - reference) * 1.4426950408889634F);
      }
      total = detail::warp_reduce(lane, total, detail::plus{});
      if (lane == 0) {
        const std::int64_t block = part.first / scored_chunks;
        call.step.score_sums(part.at, block, part.head * rows + row) = {largest, total};
      }
    }
  }
  struct larger_float {
    __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
  };
};

}  // namespace v0
}  // namespace tessera
