// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `project_rows`: project_archived (program/offloaded_cache/archive_chunks.hpp) by tensor cores, for 16-bit keys and
/// directions. Where a chunk leaves the ring, a block reads the directions of its sequence once, each warp those of
/// some channels, and adds up the warps' sums in their order.
#pragma once

#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/program/offloaded_cache/archive_chunks.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/row_operands.cuh>

namespace tessera {
inline namespace v0 {

/// Projects chunks of 8 or 16 tokens, with keys of a multiple of 32 channels and a rank of up to 192, a multiple of 8.
template <class T, class E>
struct project_rows {
  /// The portable program, whose members are the arguments.
  using call_type = project_archived<T, E>;
  static constexpr int lanes = 256;
  static constexpr int warps = lanes / 32;
  static constexpr int most_parts = 3;               ///< the most parts of 64 coefficients
  static constexpr int most_rank = 64 * most_parts;  ///< the most coefficients of a token
  static constexpr int most_tokens = 16;             ///< the most tokens of a chunk

  struct scratch_type {
    /// Coefficients of each token, summed over the channels of each warp.
    float sums[warps][most_tokens][most_rank + 4];
  };

  call_type call;  ///< extents, memory and step

  /// Whether the program can take a call, by the extents of its chunks, keys and directions.
  [[nodiscard]] static constexpr bool takes(call_type const& call) {
    offload_extents const& n = call.extents;
    return n.chunk % 8 == 0 && n.chunk <= most_tokens && n.width() % 32 == 0 && n.rank % 8 == 0 && n.rank <= most_rank;
  }
  [[nodiscard]] std::int64_t groups() const { return call.groups(); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    std::int64_t const sequence = call.step.sequence(call.extents, call.memory.sequences, which);
    bool const archives = sequence >= 0 && call.memory.sequences[sequence].archives(call.extents);
    if (!archives) {
      if (group.lane == 0) {
        call.step.residuals[which] = -1.0F;
      }
      return;
    }
    cached_sequence const known = call.memory.sequences[sequence];
    std::int64_t const first = known.chunks * call.extents.chunk;
    add_products(sequence, first, scratch, group.lane / 32, group.lane % 32);
    group.sync();
    per_lane<double, cuda_block<lanes>> held;
    per_lane<double, cuda_block<lanes>> whole;
    held[group.lane] = join(known.first * call.extents.chunk + first, scratch, group.lane);
    whole[group.lane] = add_squares(sequence, first, group.lane);
    double const all = sum(group, whole);
    double const left = 1.0 - sum(group, held) / (all > 0.0 ? all : 1.0);
    if (group.lane == 0) {
      call.step.residuals[which] = all > 0.0 && left > 0.0 ? static_cast<float>(left) : 0.0F;
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ uint4 const* token(std::int64_t sequence, std::int64_t position) const {
    return reinterpret_cast<uint4 const*>(&call.memory.ring_sources(sequence, position % call.extents.ring, 0));
  }

  __device__ __forceinline__ void add_products(std::int64_t sequence, std::int64_t first, scratch_type& scratch,
                                               int warp, int lane) const {
    bool const has_sixteen = call.extents.chunk > 8;
    uint4 const* const rows = token(sequence, first + lane / 4);
    uint4 const* const later = has_sixteen ? token(sequence, first + lane / 4 + 8) : nullptr;
    auto const blocks = static_cast<int>(call.extents.width() / 32);
    float sums[8 * most_parts][4] = {};
    for (int block = warp; block < blocks; block += warps) {
      uint4 const a = load_from_l2(rows + row_piece(lane, block));
      uint4 const b = has_sixteen ? load_from_l2(later + row_piece(lane, block)) : uint4{0, 0, 0, 0};
      // Words 0 and 1 of a 16-byte piece are numbers 0 to 3 of its eight, words 2 and 3 are the others.
      std::int64_t const row = piece_numbers * row_piece(lane, block);
      multiply(sums, {a.x, b.x, a.y, b.y}, sequence, row, lane);
      multiply(sums, {a.z, b.z, a.w, b.w}, sequence, row + 4, lane);
    }
    auto const rank = static_cast<int>(call.extents.rank);
#pragma unroll
    for (int tile = 0; tile < 8 * most_parts; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int const column = number_of_column(tile, 2 * (lane % 4) + i % 2);
        if (column < rank) {
          scratch.sums[warp][lane / 4 + 8 * (i / 2)][column] = sums[tile][i];
        }
      }
    }
  }

  /// Multiplies four rows of directions from `row` on.
  __device__ __forceinline__ void multiply(float (&sums)[8 * most_parts][4], std::uint32_t const (&keys)[4],
                                           std::int64_t sequence, std::int64_t row, int lane) const {
    auto const pieces = static_cast<int>(call.extents.rank) / piece_numbers;
    auto const* const from = reinterpret_cast<uint4 const*>(&call.memory.directions(sequence, row, 0));
    uint4 rows[most_parts][4];
#pragma unroll
    for (int part = 0; part < most_parts; ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int const piece = 8 * part + lane / 4;
        rows[part][i] = piece < pieces ? load_from_l2(from + i * pieces + piece) : uint4{0, 0, 0, 0};
      }
    }
#pragma unroll
    for (int part = 0; part < most_parts; ++part) {
      multiply_rows<T>(&sums[8 * part], keys, rows[part]);
    }
  }

  /// Writes coefficients, and returns the sum of the squares of the lane's coefficients.
  __device__ __forceinline__ double join(std::int64_t row, scratch_type const& scratch, int lane) const {
    auto const rank = static_cast<int>(call.extents.rank);
    double held = 0.0;
    for (int at = lane; at < static_cast<int>(call.extents.chunk) * rank; at += lanes) {
      int const of_chunk = at / rank;
      float total = 0.0F;
#pragma unroll
      for (int warp = 0; warp < warps; ++warp) {
        total += scratch.sums[warp][of_chunk][at - of_chunk * rank];
      }
      call.memory.coefficients(row + of_chunk, at - of_chunk * rank) = store<T>(total);
      held += static_cast<double>(total) * static_cast<double>(total);
    }
    return held;
  }

  __device__ __forceinline__ double add_squares(std::int64_t sequence, std::int64_t first, int lane) const {
    auto const pieces = static_cast<int>(call.extents.width()) / piece_numbers;
    double whole = 0.0;
    for (int at = lane; at < static_cast<int>(call.extents.chunk) * pieces; at += lanes) {
      uint4 const piece = load_from_l2(token(sequence, first + at / pieces) + at % pieces);
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        float2 const pair = unpack_pair<T>(word_of(piece, i));
        whole += static_cast<double>(pair.x) * static_cast<double>(pair.x);
        whole += static_cast<double>(pair.y) * static_cast<double>(pair.y);
      }
    }
    return whole;
  }
};

}  // namespace v0
}  // namespace tessera
