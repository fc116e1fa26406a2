// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `boxes_of_scaled`: how gemm_few_rows_boxes copies and multiplies exact codes with scales for groups of columns
/// (tile/source/scaled_source.hpp). Codes come in boxes; a stage's scales, one a row, are copied by lanes.
#pragma once

#include <cstdint>

#include <tessera/program/gemm/detail/widened_codes_product.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/source/scaled_source.hpp>

namespace tessera {
inline namespace v0 {

/// Operand: bfloat16 or float16. B: weights whose groups are multiples of 128 columns. Rows: rows of weights of a
/// thread block. Tokens: the most rows of the inputs.
template <class Operand, OperandCodes B, int Rows, int Tokens>
struct boxes_of_scaled {
  using value_type = typename B::value_type;
  static constexpr bool scales_sums = true;  ///< whether sums of a stage are scaled before they are added
  static constexpr int columns = 128;        ///< of a stage
  static constexpr int other_warps = 0;      ///< warps with other work
  static_assert(B::group % columns == 0 && Rows % lanes_in_a_warp == 0);
  static constexpr int box_columns = columns * B::code_bits / 8;  ///< elements of a row of a box, bytes
  static constexpr box_swizzle swizzle = box_columns == 64 ? box_swizzle::bytes_64 : box_swizzle::bytes_128;

  /// What one box brings of a stage: 16 bytes number c of row r lie where number c ^ (r % 8) would, of 4-bit codes
  /// where number c ^ (r / 2 % 4) would.
  struct alignas(1024) boxes_type {
    unsigned char codes[Rows][box_columns];  ///< the first in the lowest bits
  };
  /// What is copied without boxes.
  struct rest_type {
    float scales[Rows];  ///< of the stage's group of columns
  };

  /// What other warps find: nothing.
  struct missing_type {};

  tensor_map codes;  ///< for TMA
  B weights;         ///< all of them

  /// Prefetches the map, so that the first box does not wait for it.
  __device__ __forceinline__ void prepare() const { prefetch_tensor_map(codes); }
  /// Starts the box of columns from `column` on.
  __device__ __forceinline__ void load(boxes_type& to, shared_barrier& full, int column, int first_row) const {
    load_box(to.codes, codes, full, {column * B::code_bits / 8, first_row});
  }

  /// What a lane copies next.
  struct copy_state {
    std::int64_t row;     ///< its first row
    std::int64_t column;  ///< the stage's first column
    int step;             ///< columns to those that it copies next
  };
  /// Begins with the stage number `stage`; every `step`-th follows.
  __device__ __forceinline__ copy_state begin_copies(int lane, int first_row, int stage, int step) const {
    return {std::int64_t{first_row} + lane, std::int64_t{stage} * columns, step * columns};
  }
  /// Starts the lane's copies of a stage.
  __device__ __forceinline__ void copy(int lane, copy_state& at, rest_type& to) const {
#pragma unroll
    for (int i = 0; i < Rows; i += lanes_in_a_warp) {
      async_copy<4>(&to.scales[i + lane], weights.scale_address(at.row + i, at.column / B::group));
    }
    at.column += at.step;
  }

  /// What multiply() needs: nothing.
  struct context {};
  /// Calls run(context) with it.
  template <class Run>
  __device__ __forceinline__ void with_context(Run const& run) const {
    run(context{});
  }
  /// Pairs eight inputs as multiply() takes them.
  __device__ __forceinline__ static void pair_inputs(uint4 const& read, std::uint32_t (&pairs)[4]) {
    product::pair_inputs(read, pairs);
  }
  /// Multiplies half of a lane's columns of the rows `row` and `row` + 8: 16 columns from 32 q + 16 * part on.
  __device__ __forceinline__ static void multiply(context, boxes_type const& boxes, rest_type const&, int row, int q,
                                                  int part, std::uint32_t const (&pairs)[2][Tokens / 8][4],
                                                  float (&sums)[Tokens / 8][4]) {
    pieces const upper = pieces_at(boxes, row, q, part);
    pieces const lower = pieces_at(boxes, row + 8, q, part);
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      product::multiply_codes(upper.of[piece], lower.of[piece], pairs[piece], sums);
    }
  }
  /// Adds the scaled sums of a stage.
  __device__ __forceinline__ static void add_scaled(rest_type const& rest, int row, float const (&sums)[Tokens / 8][4],
                                                    float (&totals)[Tokens / 8][4]) {
    float const scales[2] = {rest.scales[row], rest.scales[row + 8]};
#pragma unroll
    for (int n = 0; n < Tokens / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        totals[n][i] += scales[i / 2] * sums[n][i];
      }
    }
  }

 private:
  using product = widened_codes_product<Operand, B, Tokens>;
  /// A lane's 16 codes of a row.
  struct alignas(2 * B::code_bits) pieces {
    typename product::lane_codes of[2];
  };
  __device__ __forceinline__ static pieces pieces_at(boxes_type const& boxes, int row, int q, int part) {
    if constexpr (B::code_bits == 8) {
      return *reinterpret_cast<pieces const*>(&boxes.codes[row][((2 * q + part) ^ (row % 8)) * 16]);
    } else {
      // Both parts are read, so that all banks are: a read of eight bytes would find rows in the same ones.
      struct alignas(16) two_parts {
        pieces of[2];
      };
      auto const both = *reinterpret_cast<two_parts const*>(&boxes.codes[row][(q ^ (row / 2 % 4)) * 16]);
      pieces chosen;
#pragma unroll
      for (int piece = 0; piece < 2; ++piece) {
        chosen.of[piece].words[0] = part == 0 ? both.of[0].of[piece].words[0] : both.of[1].of[piece].words[0];
      }
      return chosen;
    }
  }
};

}  // namespace v0
}  // namespace tessera
