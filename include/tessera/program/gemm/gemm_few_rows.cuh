// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_few_rows`: the matrix product a b^T by mma.sync where a has at most 16 rows, as when tokens are generated, and
/// b comes in chunks of codes (tile/source/chunked_source.hpp). For sm_80 and later.
///
/// The time is that of reading b once, if nothing else takes longer. So codes go from memory to registers and become an
/// operand there: they are rows of the instruction's first operand, rows of a are the columns of its second, and shared
/// memory holds neither. A thread block has some rows of b; its warps share the depth, and their sums are added at the
/// end, in the order of warps.
///
/// Cost of 16 x 8192 x 8192 with codes of 4 bits: 34 MB of codes and 2 MB of scales, 12 microseconds at 3 TB/s; 67 MB
/// of inputs from the second-level cache; 1.7e10 operations, 7 microseconds of mma.sync; and decoding, which is 4.1
/// instructions a code: a byte permuted into a float, a subtraction, a multiplication and half of a conversion, 10
/// microseconds if every scheduler issues in every cycle. In all 6.1 instructions a code are issued, in 0.6 to 0.68 of
/// the cycles; tuning/gemm/linear.hpp has the times.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/gemm/detail/few_rows_sums.cuh>
#include <tessera/program/gemm/detail/lane_operand.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/pipelined.hpp>
#include <tessera/tile/source/chunked_source.hpp>
#include <tessera/tuning/gemm/linear.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Operand: bfloat16 or float16. B: a ChunkedSource for which has_whole_chunks(). Epilogue: store_sums. Rows of `a` lie
/// at multiples of 16 bytes, and are at most Policy.tokens.
template <class Operand, class B, class Epilogue, few_rows_policy Policy>
struct gemm_few_rows {
  using value_type = typename gemm_operand<Operand>::value_type;
  static constexpr int warps = Policy.warps;
  static constexpr int lanes = lanes_in_a_warp * warps;
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr int from_architecture = 800;
  static constexpr int rows = Policy.rows;             ///< rows of b of a thread block
  static constexpr int tokens = Policy.tokens;         ///< the most rows of a
  static constexpr int in_lane = B::code_chunk::size;  ///< elements of a row of b that a lane has in a step
  static constexpr int depth = 4 * in_lane;            ///< depth of a step
  /// A step of the weights as operands of the lanes of a warp.
  using operand_type = typename operand_from<B, rows, depth>::type;
  /// A step of the weights on its way to a warp's registers.
  using codes_type = typename B::template fetched<cuda_warp, operand_type>;
  static_assert(is_16_bit_float<value_type> && std::is_same_v<typename B::value_type, value_type>);
  static_assert(ChunkedSource<B, cuda_warp, operand_type>);

  using scratch_type = few_rows_sums<warps, rows, tokens>;

  matrix_view<value_type const> a;  ///< the inputs
  B b;                              ///< the weights
  Epilogue epilogue;                ///< where sums go

  /// The thread blocks that a launch has.
  [[nodiscard]] std::int64_t blocks() const { return divide_up(b.rows(), std::int64_t{rows}); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    std::int64_t const first_row = block * rows;
    int const warp = uniform(group.lane / lanes_in_a_warp);
    cuda_warp const own;
    float sums[rows / 16][tokens / 8][4] = {};
    multiply_part(own, first_row, warp, sums);
    scratch.keep(warp, 0, own.lane, sums);
    group.sync();
    scratch.template finish<lanes>(group.lane, first_row, {first_row, b.rows()}, a.extent(0), epilogue);
  }

 private:
  using multiplier = warp_mma<Operand>;

  /// Multiplies the warp's part of the depth: every warps-th step.
  __device__ __forceinline__ void multiply_part(cuda_warp const& own, std::int64_t first_row, int warp,
                                                float (&sums)[rows / 16][tokens / 8][4]) const {
    auto const columns = static_cast<int>(b.columns());
    value_type const* inputs[tokens / 8];
    open_inputs(own.lane, inputs);
    codes_type in_flight[Policy.ahead];
    each_fetched_in_rounds(
        step_range{warp * depth, columns, warps * depth}, in_flight,
        [&](int first, codes_type& to) { b.fetch(own, to, first_row, std::int64_t{first}); },
        [&](int first, codes_type const& from) { multiply_step(own, from, inputs, first, sums); });
  }
  /// Where the lane's columns of a step begin in its rows of a. What it reads for rows that a has not is multiplied for
  /// sums that nobody uses.
  __device__ __forceinline__ void open_inputs(int lane, value_type const* (&to)[tokens / 8]) const {
#pragma unroll
    for (int i = 0; i < tokens / 8; ++i) {
      std::int64_t const token = min(std::int64_t{lane / 4 + 8 * i}, a.extent(0) - 1);
      to[i] = a.data + token * a.stride(0) + lane % 4 * in_lane;
    }
  }

  /// Multiplies a step; what lies outside of the matrices is zero.
  __device__ __forceinline__ void multiply_step(cuda_warp const& own, codes_type const& codes,
                                                value_type const* const (&from)[tokens / 8], int first,
                                                float (&sums)[rows / 16][tokens / 8][4]) const {
    operand_type weights;
    b.store(own, codes, weights);
    bool const is_inside = first + own.lane % 4 * in_lane < static_cast<int>(a.extent(1));
#pragma unroll
    for (int chunk = 0; chunk < operand_type::chunks_of_row; ++chunk) {
      uint4 inputs[tokens / 8];
#pragma unroll
      for (int i = 0; i < tokens / 8; ++i) {
        inputs[i] = load_or_zero(reinterpret_cast<uint4 const*>(from[i] + first + 8 * chunk), is_inside);
      }
#pragma unroll
      for (int m = 0; m < rows / 16; ++m) {
        std::uint32_t const of_first[4] = {weights.pair(2 * m, chunk, 0), weights.pair(2 * m + 1, chunk, 0),
                                           weights.pair(2 * m, chunk, 1), weights.pair(2 * m + 1, chunk, 1)};
        std::uint32_t const of_second[4] = {weights.pair(2 * m, chunk, 2), weights.pair(2 * m + 1, chunk, 2),
                                            weights.pair(2 * m, chunk, 3), weights.pair(2 * m + 1, chunk, 3)};
#pragma unroll
        for (int i = 0; i < tokens / 8; ++i) {
          multiplier::multiply(sums[m][i], of_first, {inputs[i].x, inputs[i].y});
          multiplier::multiply(sums[m][i], of_second, {inputs[i].z, inputs[i].w});
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
