// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `score_means`: score_chunks (program/score_chunks.hpp) for landmarks that are means of bfloat16, by tensor cores. A
/// warp reads a landmark of its key head once for all queries that share the head, straight into registers.
///
/// For each chunk and key head 2 * channels bytes are read, once, and 4 * group + 2 written and read: at 128K tokens in
/// chunks of 8, 8 key heads of 128 channels and 32 query heads 33.5 MB and 2.4 MB, 8 us at 4.55 TB/s. Products take a
/// tenth of that time. Neighbouring warps have neighbouring heads of the same chunks, so that a block of 8 warps reads
/// 128 chunks in one piece.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/known_divisor.hpp>
#include <tessera/program/piece_operands.cuh>
#include <tessera/program/score_chunks.hpp>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {

/// Rows: of queries, 8 or 16; at least those that share a key head.
template <int Channels, int Rows, ChunkSelector S>
struct score_means {
  /// The portable program, whose members say what is to be done.
  using call_type = score_chunks<bfloat16, S>;
  static constexpr int lanes = 32;
  static constexpr int groups_per_block = 8;
  static constexpr int blocks_per_multiprocessor = 2;
  static constexpr int halves = Rows / 8;   ///< of 8 rows of queries
  static constexpr int tiles = 4 / halves;  ///< of 8 chunks, that are on their way at a time
  struct scratch_type {};

  call_type call;           ///< extents, memory, step, selector and scale
  std::int32_t rows;        ///< queries that share a key head
  known_divisor by_heads;   ///< key heads
  known_divisor by_blocks;  ///< blocks of scored_chunks chunks, of the longest sequence

  /// Of fewer than 2^31 groups.
  [[nodiscard]] static score_means of(call_type const& call) {
    return {call, static_cast<std::int32_t>(call.extents.group()),
            known_divisor::of(static_cast<std::uint32_t>(call.extents.key_heads)),
            known_divisor::of(static_cast<std::uint32_t>(call.blocks()))};
  }
  [[nodiscard]] std::int64_t groups() const { return call.groups(); }

  __device__ __forceinline__ void operator()(cuda_warp const& group, std::int64_t which, scratch_type&) const {
    const auto number = static_cast<std::uint32_t>(which);
    const std::uint32_t of_head = by_heads.quotient(number);
    const std::uint32_t at = by_blocks.quotient(of_head);
    const auto head = static_cast<std::int32_t>(number - of_head * by_heads.divisor);
    const auto block = static_cast<std::int32_t>(of_head - at * by_blocks.divisor);
    const std::int64_t sequence = call.step.sequence(call.extents, call.memory.sequences, at);
    if (sequence < 0) {
      return;
    }
    const cached_sequence known = call.memory.sequences[sequence];
    const auto first = block * static_cast<std::int32_t>(scored_chunks);
    const std::int32_t end = min(first + static_cast<std::int32_t>(scored_chunks), known.chunks);
    if (first >= end) {
      return;
    }
    row_words<Channels> queries[halves];
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      const int row = group.lane / 4 + 8 * half;
      const std::int64_t query = head * rows + row;
      queries[half].load(row < rows ? &call.step.queries(at, query, 0) : nullptr, group.lane);
    }
    scaled_exponentials<float> sums[halves];
    for (auto& sum : sums) {
      sum = {-infinity, 0.0F};
    }
#pragma unroll 1
    for (std::int32_t chunk = first; chunk < end; chunk += 8 * tiles) {
      take({known.first, head, chunk, end}, queries, sums, group.lane);
    }
    write_sums(at, block, head, sums, group.lane);
  }

 private:
  struct range {
    std::int64_t row;  ///< of the sequence's first chunk
    std::int32_t head;
    std::int32_t first;
    std::int32_t end;
  };

  __device__ __forceinline__ void take(range const& r, row_words<Channels> const (&queries)[halves],
                                       scaled_exponentials<float> (&sums)[halves], int lane) const {
    const auto& landmarks = call.memory.landmarks;
    row_words<Channels> columns[tiles];
    bool is_open[tiles][2];
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      const std::int32_t chunk = min(r.first + 8 * tile + lane / 4, r.end - 1);
      columns[tile].load(landmarks.data + landmarks.offset(r.row + chunk, r.head, 0), lane);
    }
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::int32_t chunk = r.first + 8 * tile + 2 * (lane % 4) + i;
        is_open[tile][i] =
            chunk < r.end && call.memory.places(r.row + chunk, r.head) != static_cast<std::int16_t>(chunk_place::exact);
      }
    }
    float scores[tiles][4] = {};
#pragma unroll
    for (int block = 0; block < row_words<Channels>::blocks; ++block) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        const uint4 second = halves == 2 ? queries[halves - 1].words[block] : uint4{0, 0, 0, 0};
        multiply_pieces<bfloat16>(scores[tile], queries[0].words[block], second, columns[tile].words[block]);
      }
    }
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      keep(r, scores, is_open, half, sums[half], lane);
    }
  }

  /// Writes the lane's scores of one row, and adds their exponentials.
  __device__ __forceinline__ void keep(range const& r, float (&scores)[tiles][4], bool const (&is_open)[tiles][2],
                                       int half, scaled_exponentials<float>& sum, int lane) const {
    const auto& kept = call.step.scores;
    const int row = lane / 4 + 8 * half;
    float* const to = kept.data + kept.offset(r.row, r.head, row);
    float values[2 * tiles];
#pragma unroll
    for (int i = 0; i < 2 * tiles; ++i) {
      values[i] = is_open[i / 2][i % 2] ? call.scale * scores[i / 2][2 * half + i % 2] : -infinity;
      const std::int32_t chunk = r.first + i / 2 * 8 + 2 * (lane % 4) + i % 2;
      if (row < rows && chunk < r.end) {
        to[chunk * kept.strides[0]] = values[i];
      }
    }
    float largest = sum.largest;
#pragma unroll
    for (const float value : values) {
      largest = fmaxf(largest, value);
    }
    const float reference = reference_of(largest);
    float total = sum.scaled * natural_power(sum.largest - reference);
#pragma unroll
    for (const float value : values) {
      total += natural_power(value - reference);
    }
    sum = {largest, total};
  }

  __device__ __forceinline__ void write_sums(std::int64_t at, std::int32_t block, std::int32_t head,
                                             scaled_exponentials<float> const (&sums)[halves], int lane) const {
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      const float largest = largest_of_row(sums[half].largest);
      const float own = natural_power(sums[half].largest - reference_of(largest));
      const float scaled = sum_of_row(sums[half].scaled * own);
      const int row = lane / 4 + 8 * half;
      if (lane % 4 == 0 && row < rows) {
        call.step.score_sums(at, block, head * rows + row) = {largest, scaled};
      }
    }
  }

  /// What exponentials are relative to; of nothing but minus infinities they are zeros.
  __device__ __forceinline__ static float reference_of(float largest) {
    return largest == -infinity ? 0.0F : largest;
  }
  __device__ __forceinline__ static float natural_power(float x) {
    return fast_exp2(x * 1.4426950408889634F);
  }
};

}  // namespace v0
}  // namespace tessera
