// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `uncoded_queries`: queries of 16 bits whose codes warpgroup_attention makes itself, by the three warps of the
/// producer's warpgroup that have nothing else to do, while consumers work on the block before. The codes and scales
/// have the bits of encode_tiles (program/attention/quantize_heads.cuh).
///
/// A warp takes 16 rows at a time, two of which share a scale: 8 channels of both are a lane's. All warps of a thread
/// block make codes of its first block of queries together, because nobody could do anything before they are made.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/detail/head_lanes.cuh>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/message_ring.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// The block of queries whose codes are made, and where they go.
struct uncoded_block {
  std::int32_t sequence;  ///< sequence of the batch
  std::int32_t head;      ///< query head of the sequence
  std::int32_t row;       ///< the block's first query
  std::int32_t queries;   ///< queries of the sequence; codes of those beyond are 0
  unsigned char* codes;   ///< in shared memory, swizzled as TMA does
  float* scales;          ///< of each two rows: row n of 16 and row n + 8
};

/// Queries and what their codes follow from. T: bfloat16 or float16. Code: std::int8_t or float8_e4m3.
template <class T, class Code>
struct uncoded_queries {
  static constexpr int coders = 3;       ///< warps that make codes
  static constexpr int slice_rows = 16;  ///< rows that a warp takes at a time

  head_view<T const> heads;  ///< batch x query heads x queries x channels; null: codes have been made before
  float factor;              ///< what scales are multiplied by after codes are made
  float highest;             ///< the largest code

  /// Makes codes of slices `warp`, `warp` + `warps`, ... of a block. One warp; it loads `AtOnce` times 32 x 8 channels
  /// of both rows of a pair before it makes codes of them. Shape: warpgroup_attention_shape.
  template <class Shape, int AtOnce>
  __device__ __forceinline__ void encode(uncoded_block const& block, int warp, int warps, int lane) const {
    using lanes = head_lanes<T, Shape::channels>;
    constexpr int together = 32 / lanes::row_lanes;  // pairs of rows that a warp takes at a time
    constexpr int loads = AtOnce * together < slice_rows / 2 ? AtOnce : slice_rows / 2 / together;
    int const channel = lane % lanes::row_lanes * lanes::vector;
    T const* const from = heads.data + block.sequence * heads.strides[0] + block.head * heads.strides[1] + channel;
    std::int32_t const end = channel < heads.extents[3] ? block.queries - block.row : 0;
#pragma unroll 1
    for (int slice = warp; slice < Shape::rows / slice_rows; slice += warps) {
#pragma unroll 1
      for (int pair = lane / lanes::row_lanes; pair < slice_rows / 2; pair += loads * together) {
        int const row = slice * slice_rows + pair;
        T const* const first = from + (block.row + row) * heads.strides[2];
        typename lanes::pair words[loads][2][4];
#pragma unroll
        for (int i = 0; i < 2 * loads; ++i) {
          int const next = i / 2 * together + i % 2 * 8;
          lanes::template take<false>(first + next * heads.strides[2], row + next < end, words[i / 2][i % 2]);
        }
#pragma unroll
        for (int i = 0; i < loads; ++i) {
          encode_pair<Shape>(block, words[i], slice, pair + i * together, channel);
        }
      }
    }
  }

  /// Makes codes of the thread block's first block of queries. All threads. Pipeline: an attention_pipeline.
  template <class Pipeline, int Lanes>
  __device__ __forceinline__ void encode_first_block(Pipeline const& pipeline, cuda_block<Lanes> const& group,
                                                     typename Pipeline::scratch_type& scratch) const {
    std::int32_t const index = pipeline.splits.first(static_cast<std::int32_t>(block_index()));
    if (index >= 0) {
      encode_block<4>(pipeline, scratch, index, 0, uniform(group.lane / 32), Lanes / 32);
    }
    fence_async_proxy();
    group.sync();
  }
  /// Makes codes of the other blocks of queries, a part of each. One warp.
  template <class Pipeline>
  __device__ __forceinline__ void encode_next_blocks(Pipeline const& pipeline, typename Pipeline::scratch_type& scratch,
                                                     int coder) const {
    typename Pipeline::query_state query;
    bool is_first = true;
    for (auto const at : pipelined(ring_filler(query), received_by_warp(scratch.work, query))) {
      shared_barrier& full = at.when_empty(scratch.query_ring);
      if (!is_first) {
        encode_block<2>(pipeline, scratch, at.index, at.stage, coder, coders);
      }
      fence_async_proxy();
      full.arrive();
      is_first = false;
    }
  }

 private:
  /// Makes the part of warp `warp` of `warps` of a block's codes of queries.
  template <int AtOnce, class Pipeline>
  __device__ __forceinline__ void encode_block(Pipeline const& pipeline, typename Pipeline::scratch_type& scratch,
                                               std::int32_t index, int stage, int warp, int warps) const {
    using shape = typename Pipeline::shape;
    attention_work_item const work = pipeline.schedule.at(pipeline.splits.at(index).work);
    std::int32_t const sequence = work.head / pipeline.query_heads;
    encode<shape, AtOnce>({sequence, work.head - sequence * pipeline.query_heads, work.block * shape::rows,
                           pipeline.extents_of(work.head).queries, scratch.query[stage], scratch.query_scales[stage]},
                          warp, warps, static_cast<int>(thread_index_here() % 32));
  }

  /// Makes codes of a pair of rows of a slice, of this lane's channels.
  template <class Shape>
  __device__ __forceinline__ void encode_pair(uncoded_block const& block, std::uint32_t const (&words)[2][4], int slice,
                                              int pair, int channel) const {
    using lanes = head_lanes<T, Shape::channels>;
    code_scale const fitted = fit<lanes>(words);
    store_scales<lanes>(block.scales + slice * (slice_rows / 2) + pair, fitted.scale * factor);
    unsigned char* const to = block.codes + offset_of<Shape>(slice, pair, channel);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<uint2*>(to + i * 8 * Shape::row_bytes) =
          lanes::template encode<Code>(words[i], fitted.reciprocal);
    }
  }
  /// The scale of the two rows whose channels neighbouring lanes have.
  template <class Lanes>
  [[nodiscard]] __device__ __forceinline__ code_scale fit(typename Lanes::pair const (&words)[2][4]) const {
    float largest = maximum_or_nan(Lanes::magnitude_of(words[0]), Lanes::magnitude_of(words[1]));
#pragma unroll
    for (int distance = Lanes::row_lanes / 2; distance > 0; distance /= 2) {
      largest = maximum_or_nan(largest, shuffle_xor(largest, distance));
    }
    return Lanes::scale_of(largest, highest);
  }
  /// Stores the scales of the pairs that a warp has, which lie in a row; `to` is the lane's own. The first lane stores
  /// all of them: where each pair's own lane did, racecheck reported hazards, although all lanes arrive at the barrier.
  template <class Lanes>
  __device__ __forceinline__ static void store_scales(float* to, float scale) {
    constexpr int together = 32 / Lanes::row_lanes;
    float scales[together];
#pragma unroll
    for (int i = 0; i < together; ++i) {
      scales[i] = shuffle(scale, i * Lanes::row_lanes);
    }
    if (thread_index_here() % 32 == 0) {
#pragma unroll
      for (int i = 0; i < together; ++i) {
        to[i] = scales[i];
      }
    }
  }
  /// The offset of a lane's codes of the first row of a pair in a block, whose panels are swizzled by 16 bytes.
  template <class Shape>
  [[nodiscard]] __device__ __forceinline__ static int offset_of(int slice, int pair, int channel) {
    int const panel = channel / Shape::row_bytes;
    int const swizzled = Shape::row_bytes == 128 ? pair : pair / 2;
    int const chunk = channel % Shape::row_bytes / 16 ^ swizzled;
    return (panel * Shape::rows + slice * slice_rows + pair) * Shape::row_bytes + 16 * chunk + channel % 16;
  }
};

}  // namespace v0
}  // namespace tessera
