// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `few_queries_products`: a warp's products of tensor cores for a tile of attention_of_few_queries
/// (program/attention/quantized_decode.cuh).
#pragma once

#include <cstdint>

#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/program/attention/detail/quantized_decode_shape.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/tile/cuda/mma.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Addresses are those of tiles in shared memory, whose rows of 128 or 64 bytes are swizzled.
template <int Channels>
struct few_queries_products {
  using shape = few_queries_shape<Channels>;
  using scores_mma = warp_mma<std::int8_t>;
  using values_mma = warp_mma<float16>;
  /// Codes of a lane's queries, as first operands.
  using queries_type = std::uint32_t[shape::depth_steps][4];

  /// Multiplies 16 rows by the warp's 16 keys, 8 keys at a time. `state` has the warp, the lane and the queries.
  template <class State>
  __device__ __forceinline__ static void multiply_keys(std::uint32_t keys, State const& state,
                                                       std::int32_t (&sums)[2][4]) {
    constexpr int row_chunks = shape::row_bytes / 16;
    int const row = state.lane % 8;
    int const swizzled = shape::row_bytes == 128 ? row : row / 2;
#pragma unroll
    for (int i = 0; i < shape::depth_steps / 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int const chunk = 4 * i % row_chunks + state.lane / 8;
        int const panel = 4 * i / row_chunks;
        int const key = shape::warp_keys * state.warp + 8 * half + row;
        int const offset = (panel * shape::keys + key) * shape::row_bytes + (chunk ^ swizzled) * 16;
        std::uint32_t codes[4];
        load_matrix_x4(codes, keys + static_cast<std::uint32_t>(offset));
        scores_mma::multiply(sums[half], state.queries[2 * i], {codes[0], codes[1]});
        scores_mma::multiply(sums[half], state.queries[2 * i + 1], {codes[2], codes[3]});
      }
    }
  }

  /// Multiplies all weights of a tile by the warp's channels of values. Even and odd sixteens of keys are added up
  /// apart.
  __device__ __forceinline__ static void multiply_values(std::uint32_t weights, std::uint32_t values, int lane,
                                                         float (&sums)[2][shape::column_steps][4]) {
#pragma unroll
    for (int quarter = 0; quarter < 2; ++quarter) {
      std::uint32_t left_operands[4][4];
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        load_matrix_x4(left_operands[step], weights + static_cast<std::uint32_t>(4 * quarter + step) * 32U);
      }
      auto const chunk = static_cast<std::uint32_t>((4 * quarter + lane / 8) ^ (lane % 8));
#pragma unroll
      for (int column = 0; column < shape::column_steps; ++column) {
        std::uint32_t codes[4];
        load_matrix_x4(codes, values + static_cast<std::uint32_t>(column * 8 * shape::keys) + chunk * 16U);
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          uint2 const pairs = widened_pairs<float8_e4m3>::of(codes[step]);
          values_mma::multiply(sums[step % 2][column], left_operands[step], {pairs.x, pairs.y});
        }
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
