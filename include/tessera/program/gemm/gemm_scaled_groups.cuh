// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_scaled_groups`: the matrix product a b^T by sm_90a's tensor cores of two matrices of 8-bit codes with scales
/// for groups of columns (tile/source/scaled_source.hpp): what gemm_scaled_tiles computes.
///
/// A persistent, warp-specialised kernel with the pipeline of gemm_cooperative, whose k-tiles, 128 bytes deep, are a
/// group of 128 codes or a part of a longer one. Each of two consumer warpgroups has 64 x columns totals in fp32. It
/// multiplies a k-tile by halves of its columns into other registers and adds these sums, times their scales, to the
/// totals. The tensor cores multiply for the other warpgroup meanwhile. One thread of the producer warpgroup loads
/// codes by TMA; its other warps copy scales.
///
/// Cost of 8192^3 with 256 columns and clusters of two: 1.1e12 operations. For the 1024 cycles that tensor cores take
/// for a k-tile of 128 x 256, a scheduler issues 2 x 128 multiply-additions where 128 rows of b share a scale, and
/// twice as many, with 2 x 32 loads, where none do; 8-bit integers take a conversion each.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/program/gemm/gemm_cooperative.cuh>
#include <tessera/program/gemm/gemm_pipeline.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tile/source/scaled_source.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// How many neighbouring rows of a source certainly share a scale.
template <class S>
inline constexpr int rows_of_a_scale = 1;
template <class S>
requires requires {
  S::rows_of_scale;
}
inline constexpr int rows_of_a_scale<S> = S::rows_of_scale;

}  // namespace detail

/// A, B: ScaledSources of the same 8-bit elements, with scale_address() and groups of a multiple of 128 columns.
/// Epilogue: as gemm_cooperative's.
template <ScaledSource A, ScaledSource B, class Epilogue, warpgroup_gemm_policy Policy>
struct gemm_scaled_groups {
  using operand = typename A::value_type;
  /// The policy, as gemm_pipeline asks for it.
  static constexpr warpgroup_gemm_policy policy = Policy;
  using shape = warpgroup_gemm_shape;
  using stages_type = gemm_stages<operand, Policy>;
  static constexpr int lanes = stages_type::lanes;
  static constexpr int blocks_per_cluster = Policy.blocks;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  static constexpr int rows = stages_type::rows;              ///< rows of a cluster's tile
  static constexpr int columns = stages_type::columns;        ///< columns of a cluster's tile
  static constexpr int b_box_rows = stages_type::b_box_rows;  ///< rows of the boxes of b; boxes of a have 128
  static constexpr int depth = stages_type::depth;            ///< depth of a k-tile, and of all boxes
  static constexpr int parts = columns > 128 ? 2 : 1;         ///< parts of a tile's columns, one multiplied at a time
  /// Columns of the result whose sums are in registers at a time.
  static constexpr int part_columns = columns / parts;
  /// Whether all columns of a part share their scale.
  static constexpr bool has_part_scales = detail::rows_of_a_scale<B> % part_columns == 0;
  static constexpr int b_scales = has_part_scales ? parts : columns;  ///< scales of a k-tile of b
  static constexpr int a_bytes = stages_type::a_bytes;
  static constexpr int b_bytes = stages_type::b_bytes;
  using mma = warpgroup_mma<operand, part_columns>;
  static_assert(std::is_same_v<operand, typename B::value_type> && depth == 128,
                "tessera: both operands have elements of one type of 8 bits");
  static_assert(A::group % depth == 0 && B::group % depth == 0, "tessera: a k-tile is a part of one group");

  struct scratch_type {
    alignas(1024) unsigned char a[Policy.stages][a_bytes];
    alignas(1024) unsigned char b[Policy.stages][b_bytes];
    typename Epilogue::scratch_type of_warp[4 * shape::consumers];  ///< scratch of the epilogue, for each warp
    float scales_of_a[Policy.stages][shape::block_rows];            ///< of the stage's k-tile
    float scales_of_b[Policy.stages][b_scales];                     ///< of the stage's k-tile
    shared_barrier full[Policy.stages];   ///< completes when a stage's k-tile and its scales are there
    shared_barrier empty[Policy.stages];  ///< completes when all blocks of the cluster have used them
  };

  /// The codes of the inputs.
  tensor_map map_of_a;
  /// The codes of the weights.
  tensor_map map_of_b;
  A a;  ///< the inputs, for their scales
  B b;  ///< the weights, for their scales
  /// The order of work items.
  dense_schedule schedule;
  Epilogue epilogue;

  /// Runs the thread block's tiles. A launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    if (group.lane == 0) {
      prepare(scratch);
    }
    stages_type::sync_all(group);
    auto const first_item = static_cast<std::int32_t>(block / Policy.blocks);
    int const warpgroup = uniform(group.lane / shape::warpgroup);
    if (warpgroup == 0) {
      lower_registers<Policy.producer_registers>();
      if (group.lane == 0) {
        stages_type::produce(scratch, map_of_a, map_of_b, schedule, first_item);
      } else if (group.lane >= lanes_in_a_warp) {
        copy_scales(scratch, first_item, group.lane - lanes_in_a_warp);
      }
    } else {
      raise_registers<Policy.consumer_registers>();
      consume(scratch, first_item, warpgroup - 1, group.lane % shape::warpgroup);
    }
    sync_warp();
    stages_type::sync_all(group);  // no block ends while the other still writes to its shared memory
  }

 private:
  using state_type = typename stages_type::state_type;
  using sum_type = typename mma::sum_type;
  static constexpr int copiers = shape::warpgroup - lanes_in_a_warp;  ///< threads that copy scales
  static constexpr int totals_count = parts * mma::registers;         ///< totals of a thread

  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(map_of_a);
    prefetch_tensor_map(map_of_b);
    epilogue.prepare();
    constexpr int releases = Policy.blocks * shape::consumers * 4;  // one of each consumer warp
    for (int stage = 0; stage < Policy.stages; ++stage) {
      scratch.full[stage].init(1 + copiers);
      scratch.empty[stage].init(releases);
    }
    fence_barrier_init();
  }

  /// Copies the scales of all k-tiles of the block's tiles. Rows that a or b have not get the scale of the last one.
  __device__ __forceinline__ void copy_scales(scratch_type& scratch, std::int32_t first_item, int which) const {
    state_type state;
    for (std::int32_t index = first_item; index < schedule.count(); index += stages_type::stride()) {
      gemm_work_item const item = schedule.at(index);
      std::int64_t const row = std::int64_t{item.row} * rows + stages_type::rank() * shape::block_rows;
      std::int64_t const column = std::int64_t{item.column} * columns;
      for (std::int32_t k = 0; k < item.k_tiles; ++k) {
        scratch.empty[state.stage].wait(state.phase ^ 1);
        for (int i = which; i < shape::block_rows; i += copiers) {
          async_copy<4>(&scratch.scales_of_a[state.stage][i],
                        a.scale_address(min(row + i, a.rows() - 1), k * depth / A::group));
        }
        for (int i = which; i < b_scales; i += copiers) {
          std::int64_t const of_part = column + (has_part_scales ? i * part_columns : i);
          async_copy<4>(&scratch.scales_of_b[state.stage][i],
                        b.scale_address(min(of_part, b.rows() - 1), k * depth / B::group));
        }
        scratch.full[state.stage].arrive_after_copies();
        state.advance();
      }
    }
  }

  __device__ __forceinline__ void consume(scratch_type& scratch, std::int32_t first_item, int consumer,
                                          int lane) const {
    int const warp = uniform(lane / 32);
    std::int32_t const first_row = stages_type::rank() * shape::block_rows + consumer * mma::rows + warp * 16;
    typename Epilogue::scratch_type& own = scratch.of_warp[4 * consumer + warp];
    state_type state;
    for (std::int32_t index = first_item; index < schedule.count(); index += stages_type::stride()) {
      gemm_work_item const item = schedule.at(index);
      float totals[totals_count] = {};
      for (std::int32_t k = 0; k < item.k_tiles; ++k) {
        multiply_k_tile(scratch, consumer, lane, state, totals);
      }
      finish(totals, {item.column * columns, item.row * rows + first_row}, own);
    }
    epilogue.finish();
  }

  /// Multiplies a k-tile, adds its scaled sums to the totals, and releases it.
  __device__ __forceinline__ static void multiply_k_tile(scratch_type& scratch, int consumer, int lane,
                                                         state_type& state, float (&totals)[totals_count]) {
    int const stage = state.stage;
    scratch.full[stage].wait(state.phase);
    matrix_descriptor const of_a = matrix_descriptor::rows_of_128_bytes(
        detail::plain_shared_address(scratch.a[0]) +
        static_cast<std::uint32_t>(stage * a_bytes + consumer * mma::rows * shape::depth_bytes));
    matrix_descriptor const of_b = matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(scratch.b[0]) +
                                                                        static_cast<std::uint32_t>(stage * b_bytes));
    int const row = consumer * mma::rows + lane / 32 * 16 + lane % 32 / 4;
    float const of_rows[2] = {scratch.scales_of_a[stage][row], scratch.scales_of_a[stage][row + 8]};
    float last = of_rows[1];
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      sum_type sums[mma::registers];
      begin_multiply(sums);
#pragma unroll
      for (int bytes = 0; bytes < shape::depth_bytes; bytes += 32) {
        mma::multiply(sums, of_a.further(bytes), of_b.further(part * part_columns * shape::depth_bytes + bytes),
                      bytes != 0);
      }
      commit_multiply();
      await_multiply<0>(sums);
      last = add_scaled(scratch.scales_of_b[stage], part, lane, of_rows, sums, totals);
    }
    release(scratch, stage, last);
    state.advance();
  }

  /// Adds a part's sums, times their scales, to its totals. Returns the last scale that was read.
  __device__ __forceinline__ static float add_scaled(float const (&of_columns)[b_scales], int part, int lane,
                                                     float const (&of_rows)[2], sum_type const (&sums)[mma::registers],
                                                     float (&totals)[totals_count]) {
    if constexpr (has_part_scales) {
      float const of_part = of_columns[part];
      float const scales[2] = {of_rows[0] * of_part, of_rows[1] * of_part};
#pragma unroll
      for (int i = 0; i < mma::registers; ++i) {
        totals[part * mma::registers + i] += scales[i / 2 % 2] * static_cast<float>(sums[i]);
      }
      return of_part;
    } else {
      auto const* const pairs = reinterpret_cast<float2 const*>(&of_columns[part * part_columns + 2 * (lane % 4)]);
      float2 of_pair;
#pragma unroll
      for (int i = 0; i < mma::registers; i += 4) {
        of_pair = pairs[i];  // 4 registers are of 8 columns
        float(&to)[4] = *reinterpret_cast<float(*)[4]>(&totals[part * mma::registers + i]);
        to[0] += of_rows[0] * of_pair.x * static_cast<float>(sums[i]);
        to[1] += of_rows[0] * of_pair.y * static_cast<float>(sums[i + 1]);
        to[2] += of_rows[1] * of_pair.x * static_cast<float>(sums[i + 2]);
        to[3] += of_rows[1] * of_pair.y * static_cast<float>(sums[i + 3]);
      }
      return of_pair.y;
    }
  }

  /// Releases a stage for the calling warp, to the producers of all blocks of the cluster, once its scales are read.
  __device__ __forceinline__ static void release(scratch_type& scratch, int stage, float read) {
    sync_warp();
    unsigned const lane = thread_index() % 32;
    if constexpr (Policy.blocks == 1) {
      if (lane == 0) {
        scratch.empty[stage].arrive_after(read);
      }
    } else if (lane < Policy.blocks) {
      scratch.empty[stage].arrive_at_after(lane, read);
    }
  }

  __device__ __forceinline__ void finish(float (&totals)[totals_count], box_coordinate first,
                                         typename Epilogue::scratch_type& own) const {
    if constexpr (detail::is_deferring<Epilogue>) {
      detail::deferred_epilogue<Epilogue, totals_count> at_once;
      at_once.take(epilogue, totals, first);
      at_once.template run<0>(epilogue, own);
      at_once.template run<1>(epilogue, own);
    } else {
      epilogue(totals, first, own);
    }
  }
};

}  // namespace v0
}  // namespace tessera
