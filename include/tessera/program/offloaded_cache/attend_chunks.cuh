// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attend_rows`: attend_chunks (program/offloaded_cache/attend_chunks.hpp) by tensor cores, for 16-bit keys and
/// values. Up to 16 query heads share a read of the tokens of their key head, which go straight into registers.
///
/// A block has a split of 128 tokens, and each of its four warps has 32 of them: 4 * channels bytes a token are
/// read once, and a thirtieth of that is written. With 128 channels a warp has 12 KiB in flight at first, so that four
/// blocks a multiprocessor have more than the 50 KiB that memory needs. Weights are rounded to 16 bits for their
/// products with values; their sums are not rounded.
#pragma once

#include <cstdint>

#include <tessera/core/fast_divisor.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/program/attention/decode_fragments.cuh>
#include <tessera/program/offloaded_cache/attend_chunks.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/row_operands.cuh>
#include <tessera/tile/cuda/row_tile.cuh>
#include <tessera/tile/rows/weigh_rows.hpp>

namespace tessera {
inline namespace v0 {

template <int Channels, class T, class E>
struct attend_rows {
  /// The portable program, whose members are the arguments.
  using call_type = attend_chunks<T, E>;
  static constexpr int lanes = 128;
  static constexpr int warps = lanes / 32;
  static constexpr int warp_tokens = static_cast<int>(attended_tokens) / warps;  ///< tokens of a warp
  static constexpr int tiles = warp_tokens / 8;                                  ///< tiles of 8 tokens of a warp
  static constexpr int blocks_per_multiprocessor = 4;
  static constexpr int parts = Channels / 64;  ///< parts of 64 channels
  static constexpr int pitch = Channels + 4;   ///< rows of totals begin in different banks
  static_assert(warp_tokens == 32, "tessera: attend_rows has 32 tokens a warp");

  struct scratch_type {
    T const* keys[attended_tokens];    ///< the key of each token; null: there is no token
    T const* values[attended_tokens];  ///< the value of each token; null: there is no token
    float largest[warps][most_group];  ///< the largest score of a warp's tokens, for each query head; scaled, in base 2
    /// The sum of weights, 2^(score - largest), of a warp's tokens, for each query head.
    float sums[warps][most_group];
    /// Sums of weights times values of a warp's tokens, for each query head.
    alignas(16) float totals[warps][most_group][pitch];
  };

  call_type call;          ///< extents, memory, step and splits
  std::int32_t rows;       ///< query heads that share a key head
  fast_divisor by_heads;   ///< the number of key heads, as a divisor
  fast_divisor by_splits;  ///< the splits of a head in the launch, as a divisor

  /// The program for a call of fewer than 2^31 groups.
  [[nodiscard]] static attend_rows of(call_type const& call) {
    return {call, static_cast<std::int32_t>(call.extents.group()),
            fast_divisor::of(static_cast<std::uint32_t>(call.extents.key_heads)),
            fast_divisor::of(static_cast<std::uint32_t>(call.splits))};
  }
  [[nodiscard]] std::int64_t groups() const { return call.groups(); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    auto const number = static_cast<std::uint32_t>(which);
    std::uint32_t const of_head = by_heads.quotient(number);
    std::int64_t const at = by_splits.quotient(of_head);
    std::int64_t const head = number - of_head * by_heads.divisor;
    std::int64_t const split = call.first_split + by_splits.remainder(of_head);
    std::int64_t const sequence = call.step.sequence(call.extents, call.memory.sequences, at);
    if (sequence < 0) {
      return;
    }
    auto const token =
        attended_by(call.extents, call.memory, call.step, {at, sequence, head}, split, std::int64_t{group.lane});
    scratch.keys[group.lane] = token.key;
    scratch.values[group.lane] = token.value;
    group.sync();
    attend(scratch, at, head, group.lane / 32, group.lane % 32);
    group.sync();
    write(scratch, at, head, split, group.lane);
  }

 private:
  using values_type = uint4[2][parts][4];  ///< values of both halves of the warp's tokens
  using part_type = relative_part<4>;      ///< four channels of a row
  using scores_type = row_tile<T, shape<16, warp_tokens, 16>, cuda_warp>;
  using results_type = row_tile<T, shape<16, 64, warp_tokens>, cuda_warp>;

  __device__ __forceinline__ void attend(scratch_type& scratch, std::int64_t at, std::int64_t head, int warp,
                                         int lane) const {
    row_words<Channels> keys[tiles];
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      keys[tile].load(scratch.keys[warp_tokens * warp + 8 * tile + lane / 4], lane);
    }
    values_type values;
    load_values(scratch, values, 0, warp, lane);
    typename scores_type::sum_tile scores{};
    add_keys(scores.values[0], keys, at, head, lane);
    load_values(scratch, values, 1, warp, lane);
    weigh(scratch, scores, warp);
    typename results_type::a_tile weights;
    scores_type::template as_operand<results_type, 0>({}, scores, weights);
    float totals[8 * parts][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        multiply_rows<T>(&totals[8 * part], weights.words[half][0], values[half][part]);
      }
    }
    leave(scratch, totals, warp, lane);
  }

  /// Loads values of tokens from 16 `half` on; zeros where there is no token.
  __device__ __forceinline__ void load_values(scratch_type const& scratch, values_type& values, int half, int warp,
                                              int lane) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      T const* const row = scratch.values[warp_tokens * warp + 16 * half + row_of_lane(lane, i)];
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        auto const* const pieces = reinterpret_cast<uint4 const*>(row) + 8 * part;
        values[half][part][i] = row != nullptr ? load_once(pieces + lane / 4) : uint4{0, 0, 0, 0};
      }
    }
  }

  __device__ __forceinline__ void add_keys(float (&scores)[tiles][4], row_words<Channels> const (&keys)[tiles],
                                           std::int64_t at, std::int64_t head, int lane) const {
    row_words<Channels> queries[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int const row = lane / 4 + 8 * half;
      queries[half].load(row < rows ? &call.step.queries(at, head * rows + row, 0) : nullptr, lane);
    }
#pragma unroll
    for (int block = 0; block < row_words<Channels>::blocks; ++block) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        multiply_pieces<T>(scores[tile], queries[0].words[block], queries[1].words[block], keys[tile].words[block]);
      }
    }
  }

  /// Turns scores into weights, and writes their sums.
  __device__ __forceinline__ void weigh(scratch_type& scratch, typename scores_type::sum_tile& scores, int warp) const {
    cuda_warp const group;
    float const factor = call.scale * 1.4426950408889634F;
    scores_type::each_with_row(group, scores, [&](int, int token, float& score) {
      score = scratch.keys[warp_tokens * warp + token] != nullptr ? factor * score : -infinity;
    });
    typename scores_type::template row_values<tile_softmax<>::state_type> states;
    typename scores_type::template row_values<float> factors;
    weigh_rows<scores_type>(group, tile_softmax<>{}, scores, states, factors);
    scores_type::each_row_once(
        group,
        [&](int row, tile_softmax<>::state_type const& state) {
          scratch.largest[warp][row] = state.reference;
          scratch.sums[warp][row] = state.sum;
        },
        states);
  }

  __device__ __forceinline__ void leave(scratch_type& scratch, float const (&totals)[8 * parts][4], int warp,
                                        int lane) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int const row = lane / 4 + 8 * half;
      if (row < rows) {
#pragma unroll
        for (int i = 0; i < 2 * parts; ++i) {  // eight neighbouring channels of a column
          int const first = number_of_column(8 * (i / 2), 2 * (lane % 4) + i % 2);
          auto* const to = reinterpret_cast<float4*>(&scratch.totals[warp][row][first]);
          int const of_row = 2 * half + i % 2;
          int const tile = 8 * (i / 2);
          to[0] = {totals[tile][of_row], totals[tile + 1][of_row], totals[tile + 2][of_row], totals[tile + 3][of_row]};
          to[1] = {totals[tile + 4][of_row], totals[tile + 5][of_row], totals[tile + 6][of_row],
                   totals[tile + 7][of_row]};
        }
      }
    }
  }

  /// Merges the results of all warps, four channels of a row at a time.
  __device__ __forceinline__ void write(scratch_type const& scratch, std::int64_t at, std::int64_t head,
                                        std::int64_t split, int lane) const {
    constexpr int fours = Channels / 4;
    for (int i = lane; i < rows * fours; i += lanes) {
      int const row = i / fours;
      auto const all = merge_parts<warps>(relative_reducer<4>{}, [&](int warp) {
        float4 const four = reinterpret_cast<float4 const*>(scratch.totals[warp][row])[i % fours];
        return part_type{{scratch.largest[warp][row], scratch.sums[warp][row]}, {four.x, four.y, four.z, four.w}};
      });
      std::int64_t const query = head * rows + row;
      *reinterpret_cast<float4*>(&call.step.totals(split, at, query, i % fours * 4)) = {all.values[0], all.values[1],
                                                                                        all.values[2], all.values[3]};
      if (i % fours == 0) {
        call.step.states(split, at, query) = {all.state.reference, all.state.reference, all.state.sum};
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
