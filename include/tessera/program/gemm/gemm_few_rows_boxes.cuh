// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_few_rows_boxes`: the matrix product a b^T by mma.sync where a has at most 16 rows, as when tokens are
/// generated, and b is a coded matrix (detail/boxes_of_coded.cuh) or one of exact codes with scales
/// (detail/boxes_of_scaled.cuh). For sm_90: what gemm_few_rows_coded and gemm_few_rows_scaled do, with copies by TMA.
///
/// A thread block has a multiprocessor for itself, and many rows of weights, because each reads all inputs. Its
/// producer warps fill stages of 128 columns: boxes of weights and of inputs, and what boxes cannot bring. Warps that
/// multiply share rows and depth: those of one depth group wait for the same stages, and for no other warp. They follow
/// in their order, because a group's stages are its own.
///
/// A lane has 32 neighbouring columns of a stage, 8 at a time, where lanes of the upper half begin with their second
/// 16: so reads of all lanes find all banks of shared memory, as boxes of 128 bytes lie there.
///
/// What 16 x 8192 x 8192 of a coded matrix asks for: 101 MB of the stream, 25 microseconds at 4.0 TB/s, and 34 MB of
/// inputs from the second-level cache; of codes of 4 bits 36 MB, 9 microseconds. tuning/gemm/linear.hpp has what it
/// takes.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/gemm/detail/few_rows_sums.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/gemm/linear.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Weights: boxes_of_coded or boxes_of_scaled, with the policy's rows and tokens; the matrix has at least so many rows,
/// of multiples of 128 columns. Epilogue: store_sums. `a` has at most Policy.tokens rows.
template <class Weights, class Epilogue, few_rows_boxes_policy Policy>
struct gemm_few_rows_boxes {
  using value_type = typename Weights::value_type;
  static constexpr int rows = Policy.rows;          ///< rows of b of a thread block
  static constexpr int tokens = Policy.tokens;      ///< the most rows of a
  static constexpr int multipliers = Policy.warps;  ///< warps that multiply
  static constexpr int lanes = lanes_in_a_warp * (multipliers + Policy.producers + Weights::other_warps);
  static constexpr int blocks_per_multiprocessor = 1;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr int row_tiles = Policy.row_tiles;             ///< of 16 rows of b, of a warp
  static constexpr int row_groups = rows / (16 * row_tiles);     ///< warps that share columns
  static constexpr int depth_groups = multipliers / row_groups;  ///< warps that share rows
  static constexpr int columns = Weights::columns;               ///< of a stage
  static constexpr int input_columns = 64;                       ///< of a box of inputs
  static_assert(rows % (16 * row_tiles) == 0 && tokens % 8 == 0 && multipliers % row_groups == 0);
  static_assert(Policy.stages % depth_groups == 0 && Policy.stages % Policy.producers == 0,
                "the stages of a depth group are its own, and so are a producer's: phases follow each other for it");

  /// What a box brings of the weights of a stage.
  using boxes_type = typename Weights::boxes_type;
  /// What else there is to copy for it.
  using rest_type = typename Weights::rest_type;
  /// What is multiplied at a time, but for the rest. 16 bytes number c of a token's row in a box of inputs lie where
  /// number c ^ (token % 8) would.
  struct stage {
    boxes_type weights;                                          ///< rows of b
    unsigned char inputs[columns / input_columns][tokens][128];  ///< rows of a
  };
  /// What the thread block shares.
  struct scratch_type {
    union {
      stage stages[Policy.stages];                     ///< a ring
      few_rows_sums<depth_groups, rows, tokens> sums;  ///< once all stages are multiplied
    };
    rest_type rests[Policy.stages];  ///< what lanes copy for the stages
    stage_ring<Policy.stages> ring;  ///< of both
    /// What other warps find.
    [[no_unique_address]] typename Weights::missing_type missing;
  };

  tensor_map inputs;                ///< boxes of a, for TMA
  matrix_view<value_type const> a;  ///< the inputs
  Weights b;                        ///< the weights
  Epilogue epilogue;                ///< where sums go

  /// The thread blocks that a launch has.
  [[nodiscard]] std::int64_t blocks() const { return divide_up(b.weights.rows(), std::int64_t{rows}); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    auto const own_row = static_cast<std::int32_t>(block * rows);  // TMA has rows of 31 bits
    auto const all_rows = static_cast<std::int32_t>(b.weights.rows());
    std::int32_t const first_row =
        min(own_row, all_rows - rows);  // so that all rows exist; some may be another block's
    int const warp = uniform(group.lane / lanes_in_a_warp);
    int const lane = group.lane % lanes_in_a_warp;
    if (group.lane == 0) {
      prepare(scratch);
    }
    group.sync();
    float totals[row_tiles][tokens / 8][4] = {};
    if (warp < multipliers) {
      b.with_context([&](auto const& context) { consume(context, warp, lane, scratch, totals); });
    } else if (warp < multipliers + Policy.producers) {
      produce(warp - multipliers, lane, first_row, scratch);
    } else if constexpr (Weights::other_warps > 0) {
      scratch.missing.find(warp - multipliers - Policy.producers, lane, b.weights, first_row, a);
    }
    group.sync();  // all stages have been read
    if (warp < multipliers) {
      scratch.sums.keep(warp / row_groups, warp % row_groups * (16 * row_tiles), lane, totals);
    }
    group.sync();
    auto const finish = [&](std::int64_t token, std::int64_t row, float sum) {
      if constexpr (Weights::other_warps > 0) {
        sum += scratch.missing.sums[token][row - first_row];
      }
      epilogue(token, row, sum);
    };
    scratch.sums.template finish<lanes>(group.lane, first_row, {own_row, all_rows}, a.extent(0), finish);
  }

 private:
  using state_type = pipeline_state<Policy.stages>;
  static constexpr int stage_bytes = sizeof(boxes_type) + sizeof(stage::inputs);

  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(inputs);
    b.prepare();
    constexpr int fills = 1 + 2 * lanes_in_a_warp;  // boxes; what each lane has stored, and what it has copied
    scratch.ring.init(fills, row_groups * lanes_in_a_warp);
    fence_barrier_init();
  }

  /// A producer: fills every Policy.producers-th stage. Boxes come last: what lanes copy takes longest to start.
  __device__ __forceinline__ void produce(int which, int lane, int first_row, scratch_type& scratch) const {
    int const stages = static_cast<int>(b.weights.columns() / columns);
    auto copies = b.begin_copies(lane, first_row, which, Policy.producers);
    state_type state;
    state.skip(which);
#pragma unroll 1
    for (auto const at : pipelined(ring_filler(state), {which, stages, Policy.producers})) {
      shared_barrier& full = at.when_empty(scratch.ring);
      b.copy(lane, copies, scratch.rests[at.stage]);
      if (lane == 0) {
        stage& to = scratch.stages[at.stage];
        full.arrive_and_expect(stage_bytes);
        b.load(to.weights, full, at.index * columns, first_row);
#pragma unroll
        for (int box = 0; box < columns / input_columns; ++box) {
          load_box(to.inputs[box], inputs, full, {at.index * columns + box * input_columns, 0});
        }
      }
      sync_warp();
      full.arrive();
      full.arrive_after_copies();
    }
  }

  /// Multiplies the stages of the warp's depth group.
  template <class Context>
  __device__ __forceinline__ void consume(Context const& context, int warp, int lane, scratch_type& scratch,
                                          float (&totals)[row_tiles][tokens / 8][4]) const {
    int const stages = static_cast<int>(b.weights.columns() / columns);
    int const row = warp % row_groups * (16 * row_tiles) + lane / 4;
    state_type state;
    state.skip(warp / row_groups);
#pragma unroll 1
    for (pipeline_step const at :
         pipelined(ring_reader(scratch.ring, state), {warp / row_groups, stages, depth_groups})) {
      stage const& from = scratch.stages[at.stage];
      rest_type const& rest = scratch.rests[at.stage];
      if constexpr (Weights::scales_sums) {
        float sums[row_tiles][tokens / 8][4] = {};
        multiply_stage(context, from, rest, lane, row, sums);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          Weights::add_scaled(rest, row + 16 * m, sums[m], totals[m]);
        }
      } else {
        multiply_stage(context, from, rest, lane, row, totals);
      }
      scratch.ring.empty[at.stage].arrive_after(made_of_all(totals));
    }
  }
  /// A number for which all that the lane has loaded of a stage was needed: each product waits for its own operands,
  /// and upper and lower rows have their own scales.
  __device__ __forceinline__ static float made_of_all(float const (&totals)[row_tiles][tokens / 8][4]) {
    float sum = 0;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int n = 0; n < tokens / 8; ++n) {
        sum += totals[m][n][0] + totals[m][n][2];
      }
    }
    return sum;
  }
  template <class Context>
  __device__ __forceinline__ static void multiply_stage(Context const& context, stage const& from,
                                                        rest_type const& rest, int lane, int row,
                                                        float (&sums)[row_tiles][tokens / 8][4]) {
    int const q = lane % 4;
    int const token = lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int const part = half ^ (q / 2);
      std::uint32_t pairs[2][tokens / 8][4];
#pragma unroll
      for (int piece = 0; piece < 2; ++piece) {
        int const chunk = q % 2 * 4 + 2 * part + piece;
#pragma unroll
        for (int n = 0; n < tokens / 8; ++n) {
          Weights::pair_inputs(
              *reinterpret_cast<uint4 const*>(&from.inputs[q / 2][8 * n + token][(chunk ^ token) * 16]),
              pairs[piece][n]);
        }
      }
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        Weights::multiply(context, from.weights, rest, row + 16 * m, q, part, pairs, sums[m]);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
