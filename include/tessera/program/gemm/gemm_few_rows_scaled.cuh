// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_few_rows_scaled`: the matrix product a b^T by mma.sync where a has at most 16 rows, as when tokens are
/// generated, and b is a matrix of exact codes with scales for groups of columns (tile/source/scaled_source.hpp). For
/// sm_80 and later.
///
/// As in gemm_few_rows, rows of b are rows of the instruction's first operand, and what a lane has copied it
/// multiplies. But codes are widened and not decoded, which takes 1.4 instructions a code instead of 4.1, and sums of a
/// group of columns are scaled: 4 instructions of a lane for 16 x 8 sums. A warp's codes are copied to its own ring in
/// shared memory, asynchronously, so that bytes on their way take no registers and no warp waits for another.
///
/// What 16 x 8192 x 8192 with codes of 4 bits asks for: 36 MB of codes and scales, 8 microseconds at 4.5 TB/s; for rows
/// = 64, 34 MB of inputs from the second-level cache; by the machine code for sm_90a 2.5 instructions a code, 6
/// microseconds if every scheduler issues in every cycle.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/gemm/detail/few_rows_sums.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/source/scaled_source.hpp>
#include <tessera/tuning/gemm/linear.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The bytes of a row's codes that a lane has in a step: four lanes have whole groups between them, or parts of one. 0
/// if a group has no such part.
template <OperandCodes B>
[[nodiscard]] constexpr int lane_bytes_of() {
  for (int bytes = 16; bytes >= B::code_bits; bytes /= 2) {
    if (B::group % (4 * bytes * 8 / B::code_bits) == 0) {
      return bytes;
    }
  }
  return 0;
}

/// Operand: bfloat16 or float16. B: OperandCodes with whole chunks and whole groups. Epilogue: store_sums. Rows of `a`
/// lie at multiples of 16 bytes, and are at most Policy.tokens.
template <class Operand, OperandCodes B, class Epilogue, few_rows_policy Policy>
struct gemm_few_rows_scaled {
  using value_type = typename gemm_operand<Operand>::value_type;
  static constexpr int warps = Policy.warps;
  static constexpr int lanes = lanes_in_a_warp * warps;
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr int from_architecture = 800;
  static constexpr int rows = Policy.rows;                       ///< rows of b of a thread block
  static constexpr int tokens = Policy.tokens;                   ///< the most rows of a
  static constexpr int lane_bytes = lane_bytes_of<B>();          ///< bytes of a row of b that a lane has
  static constexpr int in_lane = lane_bytes * 8 / B::code_bits;  ///< the codes that these are
  static constexpr int depth = 4 * in_lane;                      ///< depth of a step
  static_assert(is_16_bit_float<value_type> && std::is_same_v<typename B::value_type, value_type>);
  static_assert(lane_bytes >= B::code_bits && rows % 16 == 0 && tokens % 8 == 0);

  /// What a lane has of a row in a step.
  struct alignas(lane_bytes) lane_codes {
    std::uint32_t words[lane_bytes / 4];  ///< codes, the first in the lowest bits
  };
  union scratch_type {
    lane_codes codes[warps][Policy.ahead][rows / 8][lanes_in_a_warp];  ///< steps on their way to each warp
    few_rows_sums<warps, rows, tokens> sums;                           ///< once all steps are multiplied
  };

  matrix_view<value_type const> a;  ///< the inputs
  B b;                              ///< the weights
  Epilogue epilogue;                ///< where sums go

  /// The thread blocks that a launch has.
  [[nodiscard]] std::int64_t blocks() const { return divide_up(b.rows(), std::int64_t{rows}); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    std::int64_t const first_row = block * rows;
    int const warp = uniform(group.lane / lanes_in_a_warp);
    float totals[rows / 16][tokens / 8][4] = {};
    multiply_part(group.lane % lanes_in_a_warp, first_row, warp, scratch, totals);
    group.sync();  // all warps have read their codes
    scratch.sums.keep(warp, group.lane % lanes_in_a_warp, totals);
    group.sync();
    scratch.sums.template finish<lanes>(group.lane, first_row, b.rows(), a.extent(0), epilogue);
  }

 private:
  using multiplier = warp_mma<Operand>;
  static constexpr int codes_of_word = 32 / B::code_bits;
  static constexpr int pairs_of_word = codes_of_word / 2;
  /// What a lane has of the inputs in a step: pairs as B widens codes to.
  struct input_pairs {
    std::uint32_t of_word[lane_bytes / 4][pairs_of_word];
  };

  /// Where a lane's part of the first step is: in the rows of b, of which it has every eighth, and in those of a. Rows
  /// that b or a have not stand for the last one, and their sums are used by nobody.
  struct lane_place {
    std::uint8_t const* codes;               ///< the lane's first row
    std::uint32_t further[rows / 8];         ///< bytes from there to each of its rows
    float const* scales;                     ///< and its first scale
    std::uint32_t scales_further[rows / 8];  ///< scales from there to those of each of its rows
    value_type const* inputs[tokens / 8];
  };
  __device__ __forceinline__ lane_place place_of(int lane, std::int64_t first_row) const {
    lane_place at;
    std::int64_t const top = min(first_row + lane / 4, b.rows() - 1);
    at.codes = b.code_bytes(top, lane % 4 * in_lane);
    at.scales = b.scale_address(top, 0);
#pragma unroll
    for (int i = 0; i < rows / 8; ++i) {
      std::int64_t const row = min(first_row + lane / 4 + 8 * i, b.rows() - 1);
      at.further[i] = static_cast<std::uint32_t>(b.code_bytes(row, lane % 4 * in_lane) - at.codes);
      at.scales_further[i] = static_cast<std::uint32_t>(b.scale_address(row, 0) - at.scales);
    }
#pragma unroll
    for (int i = 0; i < tokens / 8; ++i) {
      std::int64_t const token = min(std::int64_t{lane / 4 + 8 * i}, a.extent(0) - 1);
      at.inputs[i] = a.data + token * a.stride(0) + lane % 4 * in_lane;
    }
    return at;
  }

  /// Multiplies the warp's part of the depth: every warps-th step.
  __device__ __forceinline__ void multiply_part(int lane, std::int64_t first_row, int warp, scratch_type& scratch,
                                                float (&totals)[rows / 16][tokens / 8][4]) const {
    int const steps = static_cast<int>(b.columns() / depth);
    lane_place const at = place_of(lane, first_row);
#pragma unroll
    for (int i = 0; i < Policy.ahead; ++i) {
      copy_step(at, warp + i * warps, steps, lane, scratch.codes[warp][i]);
    }
    float scales[rows / 8];
    load_scales(at, min(warp, steps - 1), scales);
    int stage = 0;
#pragma unroll 1
    for (int step = warp; step < steps; step += warps) {
      input_pairs inputs[tokens / 8];
      load_inputs(at, step, inputs);
      async_copy_wait<Policy.ahead - 1>();
      multiply_step(lane, scratch.codes[warp][stage], inputs, scales, totals);
      load_scales(at, min(step + warps, steps - 1), scales);
      copy_step(at, step + Policy.ahead * warps, steps, lane, scratch.codes[warp][stage]);
      stage = stage + 1 == Policy.ahead ? 0 : stage + 1;
    }
    async_copy_wait<0>();
  }

  /// Starts to copy a step's codes, if there is such a step, as a group of its own.
  __device__ __forceinline__ void copy_step(lane_place const& at, int step, int steps, int lane,
                                            lane_codes (&to)[rows / 8][lanes_in_a_warp]) const {
    if (step < steps) {
      std::uint8_t const* const from = at.codes + std::int64_t{step} * (4 * lane_bytes);
#pragma unroll
      for (int i = 0; i < rows / 8; ++i) {
        async_copy<lane_bytes>(&to[i][lane], from + at.further[i]);
      }
    }
    async_copy_commit();
  }
  /// Reads the scales of the lane's rows in a step.
  __device__ __forceinline__ void load_scales(lane_place const& at, int step, float (&scales)[rows / 8]) const {
    std::int64_t const group = step * depth / B::group;
    float const* const from = at.scales + (b.scale_address(0, group) - b.scale_address(0, 0));
#pragma unroll
    for (int i = 0; i < rows / 8; ++i) {
      scales[i] = from[at.scales_further[i]];
    }
  }
  /// Reads the lane's inputs of a step, and pairs them as codes are.
  __device__ __forceinline__ void load_inputs(lane_place const& at, int step, input_pairs (&to)[tokens / 8]) const {
#pragma unroll
    for (int i = 0; i < tokens / 8; ++i) {
      auto const* from = reinterpret_cast<uint4 const*>(at.inputs[i] + std::int64_t{step} * depth);
#pragma unroll
      for (int part = 0; part < in_lane / 8; ++part) {
        uint4 const read = load_or_zero(from + part, true);
        std::uint32_t const words[4] = {read.x, read.y, read.z, read.w};
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
          int const which = 4 * part + pair;
          int const first = pair % pairs_of_word + pair / pairs_of_word * codes_of_word;  // in the 8 elements
          int const second = first + pairs_of_word;
          to[i].of_word[which / pairs_of_word][which % pairs_of_word] =
              pick_bytes(words[first / 2], words[second / 2], first % 2 == 0 ? 0x5410 : 0x7632);
        }
      }
    }
  }

  /// Multiplies a step: 16 rows after the other.
  __device__ __forceinline__ static void multiply_step(int lane, lane_codes const (&codes)[rows / 8][lanes_in_a_warp],
                                                       input_pairs const (&inputs)[tokens / 8],
                                                       float const (&scales)[rows / 8],
                                                       float (&totals)[rows / 16][tokens / 8][4]) {
#pragma unroll
    for (int m = 0; m < rows / 16; ++m) {
      lane_codes const upper = codes[2 * m][lane];
      lane_codes const lower = codes[2 * m + 1][lane];
      float sums[tokens / 8][4] = {};
#pragma unroll
      for (int word = 0; word < lane_bytes / 4; ++word) {
        multiply_word(upper.words[word], lower.words[word], word, inputs, sums);
      }
#pragma unroll
      for (int n = 0; n < tokens / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          totals[m][n][i] += scales[2 * m + i / 2] * sums[n][i];
        }
      }
    }
  }
  __device__ __forceinline__ static void multiply_word(std::uint32_t upper, std::uint32_t lower, int word,
                                                       input_pairs const (&inputs)[tokens / 8],
                                                       float (&sums)[tokens / 8][4]) {
    std::uint32_t of_upper[pairs_of_word];
    std::uint32_t of_lower[pairs_of_word];
    B::widen(cuda_warp{}, upper, of_upper);
    B::widen(cuda_warp{}, lower, of_lower);
#pragma unroll
    for (int k = 0; k < pairs_of_word; k += 2) {
      std::uint32_t const weights[4] = {of_upper[k], of_lower[k], of_upper[k + 1], of_lower[k + 1]};
#pragma unroll
      for (int n = 0; n < tokens / 8; ++n) {
        multiplier::multiply(sums[n], weights, {inputs[n].of_word[word][k], inputs[n].of_word[word][k + 1]});
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
