// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_results`: where the sums of a warp's rows go in dense_by_warps: to results of 16 bits by way of shared
/// memory, so that each row is written in chunks of 16 bytes; to results in fp32, or to the sums of a split, from the
/// registers where they are, 32 bytes of a row at a time.
#pragma once

#include <cstdint>

#include <tessera/core/with_constant.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/attention_shape.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Results: the row_tile of a warp's weights by values, `Parts` of which have all channels. Result: the type of
/// results. Stride: elements from row to row of the warp's queries in shared memory.
template <class Results, int Parts, class Result, int Stride>
struct dense_results {
  static constexpr int width = Results::columns;          ///< channels of a part
  static constexpr int warp_rows = Results::rows;         ///< rows of the warp
  using totals_type = typename Results::sum_tile[Parts];  ///< sums of all channels
  template <class Value>
  using row_values = typename Results::template row_values<Value>;

  attention_shape const& shape;
  attention_writer<decode_method, Result> const& writer;
  std::int64_t sequence;
  std::int64_t head;
  std::int64_t first_query;  ///< the warp's first query
  bool has_whole_words;      ///< whether rows of results begin at multiples of 16 bytes

  /// Writes results in fp32. `inverse`: what sums of rows are multiplied by.
  __device__ __forceinline__ void write_floats(totals_type const& totals, row_values<float>& inverse) const {
    cuda_warp const warp;
    int const lane_channel = warp.lane % 4 * 2;
    auto const channels = static_cast<int>(shape.channels);
    each_constant<Parts>([&](auto part) {
      Results::each_row_of_sums(
          warp, totals[part.value],
          [&](int row, auto const& sums, float by) {
            std::int64_t const to = row_of(row);
            if (to < 0) {
              return;
            }
            Result* const result = &writer.out(sequence, head, to, lane_channel);
#pragma unroll
            for (int i = 0; i < width / 4; i += 2) {
              int const channel = part.value * width + i * 4;
              float2 const both = by == 0.0F ? float2{0.0F, 0.0F} : float2{sums[i] * by, sums[i + 1] * by};
              if (channel < channels && has_whole_words) {
                *reinterpret_cast<float2*>(result + channel) = both;
              } else if (channel < channels) {
                result[channel] = both.x;
                result[channel + 1] = both.y;
              }
            }
          },
          inverse);
    });
  }
  /// Writes results of 16 bits. `own`: the warp's queries in shared memory, which all of its lanes have read.
  template <class T>
  __device__ __forceinline__ void write_rounded(totals_type const& totals, row_values<float>& inverse, T* own) const {
    cuda_warp const warp;
    each_constant<Parts>([&](auto part) {
      Results::each_row_of_sums(
          warp, totals[part.value],
          [&](int row, auto const& sums, float by) {
#pragma unroll
            for (int i = 0; i < width / 4; i += 2) {
              std::uint32_t const both = by == 0.0F ? 0U : pack_pair<Result>(sums[i] * by, sums[i + 1] * by);
              int const channel = part.value * width + i * 4 + warp.lane % 4 * 2;
              *reinterpret_cast<std::uint32_t*>(own + row * Stride + channel) = both;
            }
          },
          inverse);
    });
    sync_warp();
    copy(own);
  }
  /// Writes what a split adds up. Channels of a row are neighbours, a multiple of 8 of them.
  template <class State>
  __device__ __forceinline__ void write_split(totals_type const& totals, attention_partials<State> const& partials,
                                              int split) const {
    cuda_warp const warp;
    int const lane_channel = warp.lane % 4 * 2;
    auto const channels = static_cast<int>(shape.channels);
    each_constant<Parts>([&](auto part) {
      Results::each_row_of_sums(warp, totals[part.value], [&](int row, auto const& sums) {
        std::int64_t const query = first_query + row;
        if (query < shape.queries) {
          float* const to = &partials.totals(split, sequence, head, query, lane_channel);
#pragma unroll
          for (int i = 0; i < width / 4; i += 2) {
            int const channel = part.value * width + i * 4;
            if (channel < channels) {
              *reinterpret_cast<float2*>(to + channel) = float2{sums[i], sums[i + 1]};
            }
          }
        }
      });
    });
  }

 private:
  /// Where the results of one of the warp's rows lie, or -1.
  [[nodiscard]] __device__ __forceinline__ std::int64_t row_of(int row) const {
    std::int64_t const query = first_query + row;
    return query < shape.queries ? writer.row_of(sequence, query) : -1;
  }
  /// Copies results from shared memory to where they belong.
  template <class T>
  __device__ __forceinline__ void copy(T const* own) const {
    cuda_warp const warp;
    constexpr int in_row = Parts * width / 8;
    auto const channels = static_cast<int>(shape.channels);
#pragma unroll 4
    for (int i = warp.lane; i < warp_rows * in_row; i += 32) {
      int const row = i / in_row;
      int const channel = i % in_row * 8;
      std::int64_t const to = row_of(row);
      if (to < 0 || channel >= channels) {
        continue;
      }
      Result* const result = &writer.out(sequence, head, to, channel);
      auto const chunk = *reinterpret_cast<uint4 const*>(own + row * Stride + channel);
      if (has_whole_words) {
        *reinterpret_cast<uint4*>(result) = chunk;
      } else {
        auto const* const of_chunk = reinterpret_cast<Result const*>(&chunk);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          result[j] = of_chunk[j];
        }
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
