// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_few_rows_coded`: the matrix product a b^T by mma.sync where a has at most 16 rows, as when tokens are
/// generated, and b is a bf16 matrix in a stream of codes of a fixed length (tile/source/coded_weights.hpp). For sm_80
/// and later.
///
/// As in gemm_few_rows, rows of b are rows of the instruction's first operand. A thread block copies the bytes of its
/// rows and the inputs to a ring in shared memory, asynchronously, and its warps share rows and depth. A lane takes
/// eight weights of each 32 columns and joins them as detail/joined_codes.cuh says.
///
/// Exponents without a code, and blocks that are not stored as codes, are not looked up in the main loop. There such a
/// weight is the smallest normal number with its sign, which makes the right infinity or NaN of an input that is one.
/// One more warp walks through the lists meanwhile and adds what is missing of each product. A list has one weight in
/// 1,000 to 10,000.
///
/// What 16 x 8192 x 8192 asks for: 101 MB of the stream, 25 microseconds at 4.0 TB/s; 67 MB of inputs from the
/// second-level cache; 6.6 instructions a weight, of which about 3.4 take the pipe of integers at half of the rate: 15
/// microseconds if that never waits. tuning/gemm/linear.hpp has what it takes, and what holds it back.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/gemm/detail/few_rows_sums.cuh>
#include <tessera/program/gemm/detail/joined_codes.cuh>
#include <tessera/program/gemm/detail/missing_products.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/pipelined.hpp>
#include <tessera/tile/source/coded_weights.hpp>
#include <tessera/tuning/gemm/linear.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Epilogue: store_sums. `b` has at least Policy.rows rows, of a multiple of 128 columns. Rows of `a` lie at multiples
/// of 16 bytes, and are at most Policy.tokens.
template <class Epilogue, few_rows_policy Policy>
struct gemm_few_rows_coded {
  static constexpr int rows = Policy.rows;                           ///< rows of b of a thread block
  static constexpr int tokens = Policy.tokens;                       ///< the most rows of a
  static constexpr int multipliers = Policy.warps;                   ///< warps that copy and multiply
  static constexpr int lanes = lanes_in_a_warp * (multipliers + 1);  ///< one more warp walks through lists
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr int from_architecture = 800;
  static constexpr int row_groups = rows / 16;                   ///< warps that share columns
  static constexpr int depth_groups = multipliers / row_groups;  ///< warps that share rows
  static constexpr int warp_columns = 128;                       ///< columns of a stage that a warp multiplies
  static constexpr int columns = depth_groups * warp_columns;    ///< columns of a stage
  static constexpr int part = 32;                                ///< columns of which a lane has eight
  static_assert(rows % 16 == 0 && tokens % 8 == 0 && multipliers % row_groups == 0 && Policy.ahead >= 2);

  /// What is multiplied at a time. 16 bytes of a row lie where residual_at(), code_at() and input_at() say, so that
  /// lanes read different banks.
  struct alignas(16) stage {
    unsigned char residuals[rows][columns];     ///< signs and mantissas
    unsigned char codes[rows][columns / 2];     ///< codes of exponents
    unsigned char inputs[tokens][2 * columns];  ///< rows of a
  };
  /// What the thread block shares.
  struct scratch_type {
    union {
      stage stages[Policy.ahead];                      ///< a ring
      few_rows_sums<depth_groups, rows, tokens> sums;  ///< once all stages are multiplied
    };
    missing_products<tokens, rows, 1> missing;  ///< what weights without a code add to the sums
  };

  matrix_view<bfloat16 const> a;  ///< the inputs
  coded_weights b;                ///< the weights
  Epilogue epilogue;              ///< where sums go

  /// The thread blocks that a launch has.
  [[nodiscard]] std::int64_t blocks() const { return divide_up(b.rows(), std::int64_t{rows}); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    std::int64_t const own_row = block * rows;
    std::int64_t const first_row =
        min(own_row, b.rows() - rows);  // so that all rows exist; some may be another block's
    int const warp = uniform(group.lane / lanes_in_a_warp);
    int const lane = group.lane % lanes_in_a_warp;
    float totals[1][tokens / 8][4] = {};
    if (warp == multipliers) {
      scratch.missing.find(0, lane, b, first_row, a);
    } else if (b.window->is_contiguous()) {
      multiply_all<true>(group.lane, warp, first_row, scratch, totals);
    } else {
      multiply_all<false>(group.lane, warp, first_row, scratch, totals);
    }
    sync_twice(group);  // all warps have read their stages
    if (warp < multipliers) {
      scratch.sums.keep(warp / row_groups, warp % row_groups * 16, lane, totals);
    }
    sync_twice(group);
    auto const add_missing = [&](std::int64_t token, std::int64_t row, float sum) {
      epilogue(token, row, sum + scratch.missing.sums[token][row - first_row]);
    };
    scratch.sums.template finish<lanes>(group.lane, first_row, {own_row, b.rows()}, a.extent(0), add_missing);
  }

 private:
  using multiplier = warp_mma<bfloat16>;
  static constexpr int threads = lanes_in_a_warp * multipliers;  ///< those that copy and multiply
  static constexpr int residual_chunks = columns / 16;           ///< of 16 bytes, of a row
  static constexpr int code_chunks = columns / 32;
  static constexpr int input_chunks = columns / 8;
  static constexpr int residual_copies = rows * residual_chunks / threads;  ///< of a thread
  static constexpr int code_copies = rows * code_chunks / threads;
  static constexpr int input_copies = tokens * input_chunks / threads;
  static constexpr int residual_rows = threads / residual_chunks;  ///< rows that are copied at once
  static constexpr int code_rows = threads / code_chunks;
  static constexpr int input_rows = threads / input_chunks;
  static_assert(residual_copies * residual_rows == rows && code_copies * code_rows == rows &&
                input_copies * input_rows == tokens);
  static_assert(residual_rows % 4 == 0 && code_rows % 8 == 0 && input_rows % 2 == 0, "swizzles repeat");

  /// Once would do: the warp that walks through lists arrives while the others are at barriers of their own, and then
  /// racecheck takes what is written before the next barrier and read behind it for a race.
  __device__ __forceinline__ static void sync_twice(cuda_block<lanes> const& group) {
    group.sync();
    group.sync();
  }

  /// The lanes that copy and multiply, for pipelined().
  struct copying_lanes {
    int lane;  ///< the thread's number
    [[nodiscard]] __device__ __forceinline__ own_lane_iterator begin() const { return {lane, false}; }
    [[nodiscard]] __device__ __forceinline__ own_lane_iterator end() const { return {lane, true}; }
    /// What these lanes have copied, all of them see after it.
    __device__ __forceinline__ void sync() const { sync_named(1, threads); }
  };

  /// Where a byte of a row's stage lies.
  TESSERA_FN static constexpr int residual_at(int row, int byte) { return byte ^ (row % 4 * 32); }
  TESSERA_FN static constexpr int code_at(int row, int byte) { return byte ^ (row % 8 * 16); }
  TESSERA_FN static constexpr int input_at(int token, int byte) { return byte ^ (token % 2 * 64); }

  /// What a thread copies of the next stage.
  struct copies {
    std::uint8_t const* residuals;         ///< of its first row
    std::uint32_t position;                ///< of its codes in its first row, in units of 16 bytes
    opened_block blocks[code_copies];      ///< the blocks of these codes
    bfloat16 const* inputs[input_copies];  ///< rows of a; those that it has not make sums that nobody uses
    int left;                              ///< columns from the stage on
  };
  __device__ __forceinline__ copies copies_of(int thread, std::int64_t first_row) const {
    copies at;
    std::int64_t const all = b.columns();
    at.residuals = b.residuals + (first_row + thread / residual_chunks) * all + thread % residual_chunks * 16;
    at.position = static_cast<std::uint32_t>((first_row + thread / code_chunks) * (all / 32) + thread % code_chunks);
    at.left = static_cast<int>(all);
#pragma unroll
    for (int i = 0; i < input_copies; ++i) {
      std::int64_t const token = thread / input_chunks + i * input_rows;
      at.inputs[i] = token < a.extent(0) ? a.data + token * a.stride(0) + thread % input_chunks * 8 : nullptr;
    }
    find_blocks(thread, at);
    return at;
  }
  /// Looks up the blocks of the next stage's codes.
  __device__ __forceinline__ void find_blocks(int thread, copies& at) const {
    if (thread % code_chunks * 32 < at.left) {
      auto const apart = static_cast<std::uint32_t>(b.columns() / 32 * code_rows);
#pragma unroll
      for (int i = 0; i < code_copies; ++i) {
        at.blocks[i] = b.blocks[(at.position + i * apart) >> (b.log2_block - 5)];
      }
    }
  }
  /// Starts to copy what there is of the next stage.
  __device__ __forceinline__ void copy_stage(int thread, copies& at, stage& to) const {
    auto const all = static_cast<std::uint32_t>(b.columns());
    if (thread % residual_chunks * 16 < at.left) {
      int const row = thread / residual_chunks;
      unsigned char* const target = &to.residuals[row][residual_at(row, thread % residual_chunks * 16)];
#pragma unroll
      for (int i = 0; i < residual_copies; ++i) {
        async_copy<16>(target + i * residual_rows * columns,
                       at.residuals + std::uint64_t{all} * static_cast<std::uint32_t>(i * residual_rows));
      }
    }
    if (thread % code_chunks * 32 < at.left) {
      int const row = thread / code_chunks;
      unsigned char* const target = &to.codes[row][code_at(row, thread % code_chunks * 16)];
      std::uint32_t const in_block = (1U << (b.log2_block - 5)) - 1;
#pragma unroll
      for (int i = 0; i < code_copies; ++i) {
        std::uint32_t const within = (at.position + all / 32 * static_cast<unsigned>(i * code_rows)) & in_block;
        unsigned char* const codes = target + i * code_rows * (columns / 2);
        if (at.blocks[i].is_coded()) {
          async_copy<16>(codes, b.payload + (std::uint64_t{at.blocks[i].position} + within) * 16);
        } else {
          *reinterpret_cast<uint4*>(codes) = {~0U, ~0U, ~0U, ~0U};  // no weight has a code
        }
      }
    }
    if (thread % input_chunks * 8 < at.left) {
      int const token = thread / input_chunks;
      unsigned char* const target = &to.inputs[token][input_at(token, thread % input_chunks * 16)];
#pragma unroll
      for (int i = 0; i < input_copies; ++i) {
        if (token + i * input_rows < static_cast<int>(a.extent(0))) {
          async_copy<16>(target + i * input_rows * 2 * columns, at.inputs[i]);
          at.inputs[i] += columns;
        }
      }
    }
    at.residuals += columns;
    at.position += columns / 32;
    at.left -= columns;
    find_blocks(thread, at);
  }

  /// Multiplies the warp's columns of all stages.
  template <bool Contiguous>
  __device__ __forceinline__ void multiply_all(int thread, int warp, std::int64_t first_row, scratch_type& scratch,
                                               float (&totals)[1][tokens / 8][4]) const {
    exponents_of_pairs<Contiguous> const exponents(*b.window);
    int const all = static_cast<int>(b.columns());
    int const lane = thread % lanes_in_a_warp;
    int const row = warp % row_groups * 16 + lane / 4;
    int const own = warp / row_groups * warp_columns;
    copies next = copies_of(thread, first_row);
    copying_lanes const group{thread};
    auto const begin = [&](int, int stage) { copy_stage(thread, next, scratch.stages[stage]); };
#pragma unroll 1
    for (pipeline_step const at : pipelined<Policy.ahead>(group, divide_up(all, columns), begin)) {
      if (at.index * columns + own < all) {
        multiply_stage(exponents, scratch.stages[at.stage], lane, row, own, totals[0]);
      }
    }
    async_copy_wait<0>();
  }

  /// Multiplies a warp's part of a stage: 32 columns after the other.
  template <bool Contiguous>
  __device__ __forceinline__ static void multiply_stage(exponents_of_pairs<Contiguous> const& exponents,
                                                        stage const& from, int lane, int row, int own,
                                                        float (&totals)[tokens / 8][4]) {
    unsigned char const* const residuals = &from.residuals[row][0];
    unsigned char const* const codes = &from.codes[row][0];
    unsigned char const* const inputs = &from.inputs[lane / 4][0];
#pragma unroll
    for (int i = 0; i < warp_columns / part; ++i) {
      int const column = own + i * part + lane % 4 * 8;
      std::uint32_t pairs[tokens / 8][4];
#pragma unroll
      for (int n = 0; n < tokens / 8; ++n) {
        auto const read =
            *reinterpret_cast<uint4 const*>(inputs + n * 8 * 2 * columns + input_at(lane / 4, 2 * column));
        pair_inputs_of_codes(read, pairs[n]);
      }
      std::uint32_t upper[4];
      std::uint32_t lower[4];
      join_codes(exponents, *reinterpret_cast<uint2 const*>(residuals + residual_at(lane / 4, column)),
                 *reinterpret_cast<std::uint32_t const*>(codes + code_at(lane / 4, column / 2)), upper);
      join_codes(exponents, *reinterpret_cast<uint2 const*>(residuals + 8 * columns + residual_at(lane / 4, column)),
                 *reinterpret_cast<std::uint32_t const*>(codes + 4 * columns + code_at(lane / 4, column / 2)), lower);
#pragma unroll
      for (int k = 0; k < 4; k += 2) {
        std::uint32_t const weights[4] = {upper[k], lower[k], upper[k + 1], lower[k + 1]};
#pragma unroll
        for (int n = 0; n < tokens / 8; ++n) {
          multiplier::multiply(totals[n], weights, {pairs[n][k], pairs[n][k + 1]});
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
