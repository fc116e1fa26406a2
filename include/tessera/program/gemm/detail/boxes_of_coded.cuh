// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `boxes_of_coded`: how gemm_few_rows_boxes copies and multiplies the weights of a coded matrix
/// (tile/source/coded_weights.hpp). Bytes of sign and mantissa come in boxes; codes lie in blocks of the stream and are
/// copied 16 bytes at a time. Weights that no code says are added by warps of their own (missing_products.cuh).
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/gemm/detail/joined_codes.cuh>
#include <tessera/program/gemm/detail/missing_products.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tile/source/coded_weights.hpp>

namespace tessera {
inline namespace v0 {

/// Rows: rows of weights of a thread block. Tokens: the most rows of the inputs.
template <int Rows, int Tokens>
struct boxes_of_coded {
  using value_type = bfloat16;
  static constexpr bool scales_sums = false;   ///< whether sums of a stage are scaled before they are added
  static constexpr int columns = 128;          ///< of a stage
  static constexpr int box_columns = columns;  ///< elements of a row of a box, bytes
  static constexpr box_swizzle swizzle = box_swizzle::bytes_128;
  static constexpr int other_warps = 2;  ///< warps that add what no code says

  /// What one box brings of a stage: 16 bytes number c of row r lie where number c ^ (r % 8) would.
  struct alignas(1024) boxes_type {
    unsigned char residuals[Rows][columns];  ///< signs and mantissas
  };
  /// What is copied without boxes: 16 bytes number c of row r lie where number c ^ (2 * (r / 2 % 2)) would.
  struct alignas(16) rest_type {
    unsigned char codes[Rows][columns / 2];  ///< codes of exponents
  };
  /// What the other warps find.
  using missing_type = missing_products<Tokens, Rows, other_warps>;

  tensor_map residuals;   ///< for TMA
  coded_weights weights;  ///< all of them

  /// Prefetches the map, so that the first box does not wait for it.
  __device__ __forceinline__ void prepare() const { prefetch_tensor_map(residuals); }
  /// Starts the box of columns from `column` on.
  __device__ __forceinline__ void load(boxes_type& to, shared_barrier& full, int column, int first_row) const {
    load_box(to.residuals, residuals, full, {column, first_row});
  }

  static constexpr int copies = Rows / 8;  ///< of 16 bytes of codes, of a lane, in a stage
  /// What a lane copies next. The blocks of the copies after that are looked up already.
  struct copy_state {
    std::uint32_t position;     ///< of its first row's codes, in units of 16 bytes
    std::uint32_t step;         ///< to those that it copies next
    std::uint32_t left;         ///< steps
    opened_block now[copies];   ///< of what it copies next
    opened_block next[copies];  ///< of what it copies after that
  };
  /// Begins with the stage number `stage`; every `step`-th follows.
  __device__ __forceinline__ copy_state begin_copies(int lane, int first_row, int stage, int step) const {
    copy_state at;
    at.position = static_cast<std::uint32_t>(first_row + lane / 4) * in_row() +
                  static_cast<std::uint32_t>(lane % 4 + stage * (columns / 32));
    at.step = static_cast<std::uint32_t>(step * (columns / 32));
    int const stages = static_cast<int>(weights.columns() / columns);
    at.left = stage < stages ? static_cast<std::uint32_t>((stages - 1 - stage) / step) : 0;
    if (stage < stages) {
      find_blocks(at.position, at.now);
    }
    return at;
  }
  /// Starts the lane's copies of a stage.
  __device__ __forceinline__ void copy(int lane, copy_state& at, rest_type& to) const {
    if (at.left > 0) {
      find_blocks(at.position + at.step, at.next);
    }
    std::uint32_t const in_block = (1U << (weights.log2_block - 5)) - 1;
    int const row = lane / 4;
    unsigned char* const target = &to.codes[row][code_at(row, lane % 4)];
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      unsigned char* const codes = target + i * 8 * (columns / 2);
      std::uint32_t const within = (at.position + static_cast<unsigned>(8 * i) * in_row()) & in_block;
      if (at.now[i].is_coded()) {
        async_copy<16>(codes, weights.payload + (std::uint64_t{at.now[i].position} + within) * 16);
      } else {
        *reinterpret_cast<uint4*>(codes) = {~0U, ~0U, ~0U, ~0U};  // no weight has a code
      }
      at.now[i] = at.next[i];
    }
    at.position += at.step;
    --at.left;
  }

  /// Calls run(context) with what multiply() needs.
  template <class Run>
  __device__ __forceinline__ void with_context(Run const& run) const {
    if (weights.window->is_contiguous()) {
      run(exponents_of_pairs<true>(*weights.window));
    } else {
      run(exponents_of_pairs<false>(*weights.window));
    }
  }
  /// Pairs eight inputs as multiply() takes them.
  __device__ __forceinline__ static void pair_inputs(uint4 const& read, std::uint32_t (&pairs)[4]) {
    pair_inputs_of_codes(read, pairs);
  }
  /// Multiplies half of a lane's columns of the rows `row` and `row` + 8: 16 columns from 32 q + 16 * part on.
  template <class Exponents>
  __device__ __forceinline__ static void multiply(Exponents const& exponents, boxes_type const& boxes,
                                                  rest_type const& rest, int row, int q, int part,
                                                  std::uint32_t const (&pairs)[2][Tokens / 8][4],
                                                  float (&sums)[Tokens / 8][4]) {
    int const residual = ((2 * q + part) ^ (row % 8)) * 16;
    auto const upper = *reinterpret_cast<residual_pieces const*>(&boxes.residuals[row][residual]);
    auto const lower = *reinterpret_cast<residual_pieces const*>(&boxes.residuals[row + 8][residual]);
    int const code = code_at(row, q) + part * 8;
    auto const upper_codes = *reinterpret_cast<code_pieces const*>(&rest.codes[row][code]);
    auto const lower_codes = *reinterpret_cast<code_pieces const*>(&rest.codes[row + 8][code]);
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      std::uint32_t of_upper[4];
      std::uint32_t of_lower[4];
      join_codes(exponents, upper.of[piece], upper_codes.of[piece], of_upper);
      join_codes(exponents, lower.of[piece], lower_codes.of[piece], of_lower);
#pragma unroll
      for (int k = 0; k < 4; k += 2) {
        std::uint32_t const words[4] = {of_upper[k], of_lower[k], of_upper[k + 1], of_lower[k + 1]};
#pragma unroll
        for (int n = 0; n < Tokens / 8; ++n) {
          warp_mma<bfloat16>::multiply(sums[n], words, {pairs[piece][n][k], pairs[piece][n][k + 1]});
        }
      }
    }
  }

 private:
  /// A lane's 16 weights of a row.
  struct alignas(16) residual_pieces {
    uint2 of[2];
  };
  struct alignas(8) code_pieces {
    std::uint32_t of[2];
  };
  [[nodiscard]] __device__ __forceinline__ std::uint32_t in_row() const {
    return static_cast<std::uint32_t>(weights.columns() / 32);
  }
  TESSERA_FN static constexpr int code_at(int row, int chunk) {
    return (chunk ^ (row / 2 % 2 * 2)) * 16;
  }
  __device__ __forceinline__ void find_blocks(std::uint32_t position, opened_block (&to)[copies]) const {
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      to[i] = weights.blocks[(position + static_cast<unsigned>(8 * i) * in_row()) >> (weights.log2_block - 5)];
    }
  }
};

}  // namespace v0
}  // namespace tessera
