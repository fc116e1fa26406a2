// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `head_products`: the products of a prompt's keys by sm_90a's tensor cores, with each other (gram_schedule) and with
/// directions (projection_schedule). Keys are heads x tokens x channels, of any strides.
///
/// Clusters of two thread blocks compute one tile of 256 x columns after the other. The kernel is warp-specialised: as
/// in gemm_cooperative, one thread of each block issues TMA loads of pipeline stages, 64 deep, and two warpgroups
/// multiply 64 x columns each. All boxes are 64 x 64. Both blocks share the boxes of b: each block loads one half of
/// every box for both. In products of keys with each other both operands lie across the depth, which wgmma takes for
/// 16-bit elements. Products are exact in fp32; sums are fp32.
///
/// An epilogue is as in gemm_cooperative, but gets the work item, and the warp's coordinate in the tile.
///
/// Cost of K^T K with 1024 channels: 10 tiles of the 16 of 256 x 256, 1.7e11 operations for 131072 tokens, 0.25 ms at
/// 700 TFLOP/s. For 4.2e6 operations a block copies 32 KiB through L2.
#pragma once

#include <cstdint>

#include <tessera/program/gemm/gemm_pipeline.cuh>
#include <tessera/program/subspace/key_product_schedule.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/cluster.cuh>
#include <tessera/tile/cuda/sm_90/head_boxes.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// The policy of head_products: operand order, tile and pipeline.
struct head_products_policy {
  operand_order order;  ///< order of a
  int columns;          ///< columns of a tile
  int stages;           ///< pipeline stages in shared memory, each 64 deep
};

/// Multiplies keys. Schedule: gram_schedule or projection_schedule.
template <class T, class Schedule, class Epilogue, head_products_policy Policy>
struct head_products {
  static_assert(sizeof(T) == 2, "tessera: this program multiplies elements of 2 bytes");
  using shape = warpgroup_gemm_shape;
  using mma = warpgroup_mma<T, Policy.columns, Policy.order, operand_order::across_depth>;
  static constexpr int lanes = shape::warpgroup * (1 + shape::consumers);
  static constexpr int blocks_per_cluster = 2;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  /// Registers of the producer, which divides coordinates of boxes into heads and channels.
  static constexpr int producer_registers = 40;
  static constexpr int consumer_registers = 232;      ///< registers of threads that multiply
  static constexpr int box = head_box;                ///< rows and columns of a box
  static constexpr int shared_rows = box / 2;         ///< rows that a block loads of each box that both blocks share
  static constexpr int box_bytes = box * box * 2;     ///< bytes of a box in shared memory
  static constexpr int boxes = Policy.columns / box;  ///< boxes of b in a stage, next to each other

  struct scratch_type {
    alignas(1024) unsigned char a[Policy.stages][shape::consumers][box_bytes];
    alignas(1024) unsigned char b[Policy.stages][boxes][box_bytes];
    typename Epilogue::scratch_type of_warp[4 * shape::consumers];  ///< scratch of the epilogue, for each warp
    /// `full` completes when a stage has been loaded, `empty` when both blocks have multiplied a stage.
    stage_ring<Policy.stages> ring;
  };

  tensor_map a;       ///< boxes of 64 x 64
  tensor_map b;       ///< boxes of 32 x 64
  Schedule schedule;  ///< the schedule, gram_schedule or projection_schedule
  Epilogue epilogue;  ///< what is done with sums

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    if (group.lane == 0) {
      prepare(scratch);
    }
    sync_cluster();
    auto const first_item = static_cast<std::int32_t>(block / 2);
    int const warpgroup = uniform(group.lane / shape::warpgroup);
    if (warpgroup == 0) {
      lower_registers<producer_registers>();
      if (group.lane == 0) {
        produce(scratch, first_item);
      }
    } else {
      raise_registers<consumer_registers>();
      consume(scratch, first_item, warpgroup - 1, group.lane % shape::warpgroup);
    }
    sync_warp();
    sync_cluster();  // no block ends while the other one still writes to its shared memory
  }

 private:
  using state_type = pipeline_state<Policy.stages>;

  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(a);
    prefetch_tensor_map(b);
    epilogue.prepare();
    scratch.ring.init(1, 2 * shape::consumers * 4);  // one arrival for each warp
    fence_barrier_init();
  }

  /// The distance from a work item of a cluster to its next one.
  __device__ __forceinline__ static std::int32_t stride() { return static_cast<std::int32_t>(blocks_in_grid()) / 2; }

  __device__ __forceinline__ void produce(scratch_type& scratch, std::int32_t first_item) const {
    auto const own = static_cast<std::int32_t>(rank_in_cluster());
    std::int32_t const count = schedule.count();
    state_type state;
    for (std::int32_t index = first_item; index < count; index += stride()) {
      head_work_item const item = schedule.at(index);
      coordinates at = first_coordinates(item, own);
      for (auto const step : pipelined(ring_filler(state), item.k_tiles)) {
        load_stage(scratch, at, own, step.stage, step.when_empty(scratch.ring));
      }
    }
  }

  /// The coordinates of the boxes of the next stage. They are updated step by step, since the one thread that issues
  /// copies has no time to divide for each.
  struct coordinates {
    head_coordinate a[shape::consumers];
    head_coordinate b[boxes];
  };

  __device__ __forceinline__ coordinates first_coordinates(head_work_item const& item, std::int32_t own) const {
    coordinates found;
#pragma unroll
    for (int i = 0; i < shape::consumers; ++i) {
      found.a[i] = schedule.a_coordinate(item, own * shape::block_rows + i * box, 0);
    }
#pragma unroll
    for (int i = 0; i < boxes; ++i) {
      found.b[i] = schedule.b_coordinate(item, i * box, own * shared_rows, 0);
    }
    return found;
  }

  __device__ __forceinline__ void load_stage(scratch_type& scratch, coordinates& at, std::int32_t own, int stage,
                                             shared_barrier& full) const {
    constexpr std::uint16_t everyone = 3;
    full.arrive_and_expect((shape::consumers + boxes) * box_bytes);
#pragma unroll
    for (int i = 0; i < shape::consumers; ++i) {
      load_head_box(scratch.a[stage][i], a, full, at.a[i]);
      at.a[i] = schedule.next_a(at.a[i]);
    }
#pragma unroll
    for (int i = 0; i < boxes; ++i) {
      load_head_box_for_cluster(scratch.b[stage][i] + own * (box_bytes / 2), b, full, at.b[i], everyone);
      at.b[i] = schedule.next_b(at.b[i]);
    }
  }

  __device__ __forceinline__ void consume(scratch_type& scratch, std::int32_t first_item, int consumer,
                                          int lane) const {
    auto const own = static_cast<std::int32_t>(rank_in_cluster());
    int const warp = uniform(lane / 32);
    std::int32_t const row = own * shape::block_rows + consumer * box + warp * 16;
    std::int32_t const count = schedule.count();
    state_type state;
    typename mma::sum_type sums[mma::registers];
    for (std::int32_t index = first_item; index < count; index += stride()) {
      head_work_item item = schedule.at(index);
      // So that the compiler knows that it is the same in all lanes.
      item.k_tiles = uniform(item.k_tiles);
      multiply_tile(scratch, consumer, state, sums, item.k_tiles);
      epilogue(sums, item, row, scratch.of_warp[4 * consumer + warp]);
    }
    epilogue.finish();
  }

  /// Multiplies a tile of at least one stage. One stage is multiplied while the next is awaited, and is released when
  /// the multiplications of the next one have begun.
  __device__ __forceinline__ static void multiply_tile(scratch_type& scratch, int consumer, state_type& state,
                                                       typename mma::sum_type (&sums)[mma::registers],
                                                       std::int32_t k_tiles) {
    pin_registers(sums);
    product_reader reads(scratch.ring, state, release_to_cluster<2>{});
    for (pipeline_step const at : pipelined(reads, {0, 1})) {
      multiply_stage(scratch, consumer, at.stage, sums, false);
    }
    for (pipeline_step const at : pipelined(reads, {1, k_tiles})) {
      multiply_stage(scratch, consumer, at.stage, sums, true);
    }
    reads.finish(sums);
  }

  /// Begins to multiply a stage. If `add` is false, the old sums count as zero.
  __device__ __forceinline__ static void multiply_stage(scratch_type& scratch, int consumer, int stage,
                                                        typename mma::sum_type (&sums)[mma::registers], bool add) {
    constexpr bool is_across = Policy.order == operand_order::across_depth;
    constexpr int rows_of_depth = 16 * 128;  // bytes: a multiplication takes 16 rows of a box
    std::uint32_t const a_address = detail::plain_shared_address(scratch.a) +
                                    static_cast<std::uint32_t>((stage * shape::consumers + consumer) * box_bytes);
    std::uint32_t const b_address =
        detail::plain_shared_address(scratch.b) + static_cast<std::uint32_t>(stage * boxes * box_bytes);
    matrix_descriptor const first = is_across ? matrix_descriptor::with_strides(a_address, box_bytes, 1024)
                                              : matrix_descriptor::rows_of_128_bytes(a_address);
    matrix_descriptor const second = matrix_descriptor::with_strides(b_address, box_bytes, 1024);
    begin_multiply();
#pragma unroll
    for (int step = 0; step < box / 16; ++step) {
      mma::multiply(sums, first.further(step * (is_across ? rows_of_depth : 32)), second.further(step * rows_of_depth),
                    add || step != 0);
    }
    commit_multiply();
  }
};

}  // namespace v0
}  // namespace tessera
