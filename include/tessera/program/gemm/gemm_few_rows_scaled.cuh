// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_few_rows_scaled`: the matrix product a b^T by mma.sync where a has at most 16 rows, as when tokens are
/// generated, and b is a matrix of exact codes with scales for groups of columns (tile/source/scaled_source.hpp). For
/// sm_80 and later.
///
/// As in gemm_few_rows, rows of b are rows of the instruction's first operand, and what a lane has copied it
/// multiplies. But codes are widened and not decoded, which takes 1.4 instructions a code instead of 4.1, and sums of a
/// group of columns are scaled: 4 instructions of a lane for 16 x 8 sums. A warp's codes are copied to its own ring in
/// shared memory, asynchronously, so that bytes on their way take no registers and no warp waits for another. A lane
/// takes eight codes of each 32 columns, not neighbouring 32, so that four lanes read 64 neighbouring bytes of inputs.
///
/// Scales are copied to shared memory beforehand, 128 groups at a time.
///
/// What 16 x 8192 x 8192 with codes of 4 bits asks for: 36 MB of codes and scales, 9 microseconds at 4.0 TB/s; 67 MB of
/// inputs, most of them from the second-level cache; 2.6 instructions a code, of which half take the pipe of integers,
/// 6 microseconds if that never waits. tuning/gemm/linear.hpp has what it takes.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/gemm/detail/few_rows_sums.cuh>
#include <tessera/program/gemm/detail/widened_codes_product.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_80/refilled_ring.cuh>
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

/// Operand: bfloat16 or float16. B: OperandCodes with whole chunks and whole groups, and at least Policy.rows rows.
/// Epilogue: store_sums. Rows of `a` lie at multiples of 16 bytes, and are at most Policy.tokens.
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

  static constexpr int parts = in_lane / 8;        ///< parts of 32 columns of a step, of which a lane has 8
  static constexpr int part_bytes = B::code_bits;  ///< bytes of a lane's 8 codes
  /// Steps that are copied together: 128 bytes of a row, a line of the second-level cache, if lanes have 16 of them.
  static constexpr int stage_steps = lane_bytes == 16 ? 2 : 1;
  static constexpr int stage_columns = stage_steps * depth;       ///< columns of a stage
  static constexpr int row_bytes = stage_steps * 4 * lane_bytes;  ///< bytes of a row of b in a stage
  static constexpr int row_lanes = row_bytes / lane_bytes;        ///< lanes that copy them
  /// The codes of a warp's rows in some steps. 16 bytes number c of a row lie where swizzled() says, so that lanes read
  /// different banks.
  struct alignas(16) warp_codes {
    unsigned char bytes[rows][row_bytes];  ///< codes, the first in the lowest bits
  };
  static constexpr int groups_at_once = 128;  ///< groups whose scales the thread block has
  /// What the thread block shares.
  struct scratch_type {
    union {
      warp_codes codes[warps][Policy.ahead];    ///< stages on their way to each warp
      few_rows_sums<warps, rows, tokens> sums;  ///< once all steps are multiplied
    };
    float scales[rows][groups_at_once + 4];  ///< of some groups; rows begin in different banks
  };

  matrix_view<value_type const> a;  ///< the inputs
  B b;                              ///< the weights
  Epilogue epilogue;                ///< where sums go

  /// The thread blocks that a launch has.
  [[nodiscard]] std::int64_t blocks() const { return divide_up(b.rows(), std::int64_t{rows}); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    std::int64_t const own_row = block * rows;
    std::int64_t const first_row =
        min(own_row, b.rows() - rows);  // so that all rows exist; some may be another block's
    int const warp = uniform(group.lane / lanes_in_a_warp);
    float totals[rows / 16][tokens / 8][4] = {};
    multiply_part(group, first_row, warp, scratch, totals);
    group.sync();  // all warps have read their codes
    scratch.sums.keep(warp, 0, group.lane % lanes_in_a_warp, totals);
    group.sync();
    scratch.sums.template finish<lanes>(group.lane, first_row, {own_row, b.rows()}, a.extent(0), epilogue);
  }

 private:
  using product = widened_codes_product<Operand, B, tokens>;
  using lane_codes = typename product::lane_codes;
  /// What a lane has of the inputs in a step: eight of each part's 32 columns.
  struct lane_inputs {
    uint4 parts_of[parts];
  };
  /// Where a byte of a row's stage lies.
  TESSERA_FN static constexpr int swizzled(int row, int byte) {
    return row_bytes == 128 ? byte ^ (row * part_bytes * 4 % 128) : byte;
  }

  /// Where a lane reads. Addresses follow from few numbers by multiply-adds, because other integer instructions are
  /// what the program has most of.
  struct lane_place {
    std::uint8_t const* codes;             ///< what the lane copies of the next stage, in its first row
    int left;                              ///< bytes of that row from there on
    std::uint32_t stride;                  ///< bytes from row to row of b
    value_type const* inputs[tokens / 8];  ///< the lane's first columns of the stage in its rows of a
  };
  /// The place of a lane of warp number `warp`. Sums of rows that a has not are used by nobody.
  __device__ __forceinline__ lane_place place_of(int lane, std::int64_t first_row, int warp) const {
    lane_place at;
    int const byte = warp * row_bytes + lane % row_lanes * lane_bytes;
    at.codes = b.code_bytes(first_row + lane / row_lanes, 0) + byte;
    at.left = static_cast<int>(b.columns() * B::code_bits / 8) - byte;
    at.stride = static_cast<std::uint32_t>(b.code_bytes(1, 0) - b.code_bytes(0, 0));
#pragma unroll
    for (int i = 0; i < tokens / 8; ++i) {
      std::int64_t const token = min(std::int64_t{lane / 4 + 8 * i}, a.extent(0) - 1);
      at.inputs[i] = a.data + token * a.stride(0) + warp * stage_columns + lane % 4 * 8;
    }
    return at;
  }

  /// Multiplies the warp's part of the depth: every warps-th stage.
  __device__ __forceinline__ void multiply_part(cuda_block<lanes> const& group, std::int64_t first_row, int warp,
                                                scratch_type& scratch,
                                                float (&totals)[rows / 16][tokens / 8][4]) const {
    constexpr int window = B::group / depth * groups_at_once;  // steps whose scales are there together
    static_assert(window % (warps * stage_steps) == 0);
    int const lane = group.lane % lanes_in_a_warp;
    int const steps = static_cast<int>(b.columns() / depth);
    lane_place at = place_of(lane, first_row, warp);
    cuda_warp const own;
    int stage = 0;
    auto const fill = [&](int into) { copy_stage(at, lane, scratch.codes[warp][into]); };
    ring_refiller<Policy.ahead, cuda_warp, decltype(fill)> const ring(own, stage, fill);
    ring.fill_all();
#pragma unroll 1
    for (int first = 0; first < steps; first += window) {
      if (first > 0) {
        group.sync();  // all warps have read the scales before
      }
      load_scales(lane, warp, first_row, first / (B::group / depth), scratch);
      group.sync();
      int const in_window = min(window, steps - first);
#pragma unroll 1
      for (pipeline_step const step : pipelined(ring, {warp * stage_steps, in_window, warps * stage_steps})) {
        multiply_stage(lane, step.index, in_window, at, scratch.codes[warp][step.stage], scratch.scales, totals);
      }
    }
    async_copy_wait<0>();
  }
  /// Multiplies a stage from step `step` on of a window of steps, of which there are `steps`.
  __device__ __forceinline__ static void multiply_stage(int lane, int step, int steps, lane_place& at,
                                                        warp_codes const& codes,
                                                        float const (&all_scales)[rows][groups_at_once + 4],
                                                        float (&totals)[rows / 16][tokens / 8][4]) {
#pragma unroll
    for (int i = 0; i < stage_steps; ++i) {
      if (i > 0 && step + i >= steps) {
        break;
      }
      lane_inputs inputs[tokens / 8];
      load_inputs(at, i, inputs);
      float scales[rows / 8];
#pragma unroll
      for (int row = 0; row < rows / 8; ++row) {
        scales[row] = all_scales[8 * row + lane / 4][static_cast<unsigned>(step + i) / (B::group / depth)];
      }
      multiply_step(lane, i, codes, inputs, scales, totals);
    }
#pragma unroll
    for (int i = 0; i < tokens / 8; ++i) {
      at.inputs[i] += warps * stage_columns;
    }
  }

  /// Starts to copy what there is of the next stage's codes.
  __device__ __forceinline__ static void copy_stage(lane_place& at, int lane, warp_codes& to) {
    constexpr int together = lanes_in_a_warp / row_lanes;
    if (at.left > 0) {
#pragma unroll
      for (int i = 0; i < rows / together; ++i) {
        int const row = i * together + lane / row_lanes;
        async_copy<lane_bytes>(&to.bytes[row][swizzled(row, lane % row_lanes * lane_bytes)],
                               at.codes + std::uint64_t{at.stride} * static_cast<std::uint32_t>(i * together));
      }
    }
    at.codes += warps * row_bytes;
    at.left -= warps * row_bytes;
  }
  /// Reads the scales of all rows for groups from number `first` on: a warp a row, neighbours side by side. A load of
  /// a lane's own scales would ask the first-level cache for eight lines in every step.
  __device__ __forceinline__ void load_scales(int lane, int warp, std::int64_t first_row, int first,
                                              scratch_type& scratch) const {
    int const groups = min(static_cast<int>(b.columns() / B::group) - first, groups_at_once);
    std::int64_t const apart = b.scale_address(0, 1) - b.scale_address(0, 0);
    static_assert(rows % warps == 0);
#pragma unroll
    for (int row = 0; row < rows; row += warps) {
      float const* const from = b.scale_address(first_row + row + warp, first);
#pragma unroll
      for (int i = 0; i < groups_at_once; i += lanes_in_a_warp) {
        if (i + lane < groups) {
          scratch.scales[row + warp][i + lane] = from[apart * (i + lane)];
        }
      }
    }
  }
  /// Reads the lane's inputs of a step of the stage.
  __device__ __forceinline__ static void load_inputs(lane_place const& at, int step, lane_inputs (&to)[tokens / 8]) {
#pragma unroll
    for (int i = 0; i < tokens / 8; ++i) {
      auto const* from = reinterpret_cast<uint4 const*>(at.inputs[i] + step * depth);
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        to[i].parts_of[part] = load_or_zero(from + 4 * part, true);
      }
    }
  }
  /// Multiplies a step of a stage: a part of 32 columns after the other.
  __device__ __forceinline__ static void multiply_step(int lane, int step, warp_codes const& codes,
                                                       lane_inputs const (&inputs)[tokens / 8],
                                                       float const (&scales)[rows / 8],
                                                       float (&totals)[rows / 16][tokens / 8][4]) {
    float sums[rows / 16][tokens / 8][4] = {};
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      std::uint32_t of_tokens[tokens / 8][4];
#pragma unroll
      for (int n = 0; n < tokens / 8; ++n) {
        product::pair_inputs(inputs[n].parts_of[part], of_tokens[n]);
      }
      int const at = swizzled(lane / 4, step * 4 * lane_bytes + part * 4 * part_bytes + lane % 4 * part_bytes);
#pragma unroll
      for (int m = 0; m < rows / 16; ++m) {
        auto const& upper = *reinterpret_cast<lane_codes const*>(&codes.bytes[16 * m + lane / 4][at]);
        auto const& lower = *reinterpret_cast<lane_codes const*>(&codes.bytes[16 * m + 8 + lane / 4][at]);
        product::multiply_codes(upper, lower, of_tokens, sums[m]);
      }
    }
#pragma unroll
    for (int m = 0; m < rows / 16; ++m) {
#pragma unroll
      for (int n = 0; n < tokens / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          totals[m][n][i] += scales[2 * m + i / 2] * sums[m][n][i];
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
