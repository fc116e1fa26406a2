// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_stages`: the common parts of gemm_cooperative and gemm_pingpong: extents of tiles and pipeline stages, the
/// roles in a cluster, and the producer, the thread that loads k-tiles by TMA.
///
/// An operand along the depth is loaded in one box, whose rows are 128 bytes of the depth; one across the depth (of 2
/// bytes) in boxes of 64 of its rows, of which 64 numbers of the depth are rows of 128 bytes. Boxes of both kinds take
/// 128 bytes for each of the operand's rows, so that 64 rows begin at the same places of a stage.
#pragma once

#include <cstdint>

#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/cluster.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

/// The extents that are the same for every policy.
struct warpgroup_gemm_shape {
  static constexpr int block_rows = 128;   ///< rows of a thread block's tile
  static constexpr int depth_bytes = 128;  ///< bytes of a row in a pipeline stage
  static constexpr int consumers = 2;      ///< consumer warpgroups
  static constexpr int warpgroup = 128;    ///< threads of a warpgroup
};

/// What a program whose k-tiles are the codes of both operands alone loads beside them.
struct no_more_loads {
  /// How many bytes are loaded for each k-tile of a work item.
  [[nodiscard]] __device__ __forceinline__ static constexpr int bytes(gemm_work_item const&) { return 0; }
  /// Starts to load them for the k-tile that begins at column `first` of the operands. `full` counts them.
  __device__ __forceinline__ static void load(int, gemm_work_item const&, std::int32_t, shared_barrier&) {}
};

/// How a program's operand lies in the memory from which TMA loads it, and in a stage.
template <operand_order Order, int Rows, int Depth>
struct staged_operand {
  static constexpr bool is_along = Order == operand_order::along_depth;  ///< whether rows have the depth
  static constexpr int box_rows = is_along ? Rows : 64;                  ///< the operand's rows in a box
  static constexpr int boxes = Rows / box_rows;                          ///< boxes that are loaded
  static constexpr int box_bytes = box_rows * 128;                       ///< bytes of a box
  static constexpr int bytes_of_step = is_along ? 32 : 16 * 128;         ///< from one multiplication to the next
  static constexpr box_shape box = {is_along ? Rows : Depth, is_along ? Depth : 64};  ///< as tensor maps have it
  static_assert(Rows % box_rows == 0 && (is_along || Depth == 64), "tessera: boxes across the depth are of 64 x 64");

  /// The place of box number `i` in the matrix, from depth `first` and row `row` of the operand on.
  __device__ __forceinline__ static box_coordinate place(std::int32_t first, std::int32_t row, int i) {
    return is_along ? box_coordinate{first, row} : box_coordinate{row + i * box_rows, first};
  }
  /// The descriptor of rows in a stage that begin at this shared address, at a box or, along the depth, inside of it.
  __device__ __forceinline__ static matrix_descriptor descriptor(std::uint32_t address) {
    return is_along ? matrix_descriptor::rows_of_128_bytes(address)
                    : matrix_descriptor::with_strides(address, box_bytes, 1024);
  }
};

/// Operands: how elements are multiplied, or ordered_operands.
template <class Operands, warpgroup_gemm_policy Policy>
struct gemm_stages {
  using shape = warpgroup_gemm_shape;
  using orders = orders_of<Operands>;  ///< how the operands lie
  using state_type = pipeline_state<Policy.stages>;
  /// How a consumer warp gives a stage back: to the producers of all blocks of the cluster.
  using release_type = release_to_cluster<Policy.blocks>;
  static_assert(Policy.blocks == 1 || Policy.blocks == 2, "tessera: clusters of this program have 1 or 2 blocks");
  static constexpr int lanes = shape::warpgroup * (1 + shape::consumers);
  static_assert(has_register_budgets(1 + shape::consumers,
                                     Policy.producer_registers + shape::consumers * Policy.consumer_registers),
                "tessera: warpgroups cannot have more registers together than at the kernel's entry");
  static constexpr int rows = shape::block_rows * Policy.blocks;     ///< rows of a cluster's tile
  static constexpr int columns = Policy.columns;                     ///< columns of a cluster's tile
  static constexpr int b_box_rows = Policy.columns / Policy.blocks;  ///< rows of the boxes of b; boxes of a have 128
  static constexpr int depth =                                       ///< depth of a k-tile, and of all boxes
      shape::depth_bytes / static_cast<int>(sizeof(typename gemm_operand<typename orders::operand>::value_type));
  static constexpr int a_bytes = shape::block_rows * shape::depth_bytes;
  static constexpr int b_bytes = Policy.columns * shape::depth_bytes;
  using of_a = staged_operand<orders::a, shape::block_rows, depth>;  ///< how a block loads its rows of a
  using of_b = staged_operand<orders::b, b_box_rows, depth>;         ///< how it loads its part of b

  /// Waits for all threads of all blocks of the cluster.
  __device__ __forceinline__ static void sync_all(cuda_block<lanes> const& group) {
    if constexpr (Policy.blocks == 1) {
      group.sync();
    } else {
      sync_cluster();
    }
  }
  /// The thread block's number in its cluster.
  __device__ __forceinline__ static std::int32_t rank() {
    if constexpr (Policy.blocks == 1) {
      return 0;
    } else {
      return static_cast<std::int32_t>(rank_in_cluster());
    }
  }
  /// The distance from one work item of a block to its next.
  __device__ __forceinline__ static std::int32_t stride() {
    return static_cast<std::int32_t>(blocks_in_grid()) / Policy.blocks;
  }

  /// The producer, one thread: loads all k-tiles of a block's work items, in order. Scratch: a program's scratch_type,
  /// with the stages a and b and the barriers full and empty. `also` loads what else a k-tile has, see no_more_loads.
  template <class Scratch, class Schedule, class Loads = no_more_loads>
  __device__ __forceinline__ static void produce(Scratch& scratch, tensor_map const& a, tensor_map const& b,
                                                 Schedule const& schedule, std::int32_t first_item,
                                                 Loads const& also = {}) {
    std::int32_t const own = rank();
    std::int32_t const count = schedule.count();
    state_type state;
    for (std::int32_t index = first_item; index < count; index += stride()) {
      gemm_work_item const item = schedule.at(index);
      std::int32_t const row = item.row * rows + own * shape::block_rows;
      std::int32_t const column = tile_of_b(schedule, item, index) * columns + own * b_box_rows;
      for (auto const at : pipelined(ring_filler(state), item.k_tiles)) {
        std::int32_t const first = schedule.k_tile(item.first + at.index) * depth;
        shared_barrier& full = at.when_empty(scratch.ring);
        full.arrive_and_expect(a_bytes + b_bytes + also.bytes(item));
        also.load(at.stage, item, first, full);
#pragma unroll
        for (int i = 0; i < of_a::boxes; ++i) {
          load_box(scratch.a[at.stage] + i * of_a::box_bytes, a, full, of_a::place(first, row, i));
        }
#pragma unroll
        for (int i = 0; i < of_b::boxes; ++i) {
          unsigned char* const to = scratch.b[at.stage] + own * (b_bytes / Policy.blocks) + i * of_b::box_bytes;
          if constexpr (Policy.blocks == 1) {
            load_box(to, b, full, of_b::place(first, column, i));
          } else {
            constexpr std::uint16_t everyone = (1 << Policy.blocks) - 1;
            load_box_for_cluster(to, b, full, of_b::place(first, column, i), everyone);
          }
        }
      }
    }
  }

  /// The tile of b that a work item multiplies: its column, unless the schedule says that b lies in another order.
  template <class Schedule>
  __device__ __forceinline__ static std::int32_t tile_of_b(Schedule const& schedule, gemm_work_item const& item,
                                                           std::int32_t index) {
    if constexpr (requires { schedule.tile_of_b(index); }) {
      return schedule.tile_of_b(index);
    } else {
      return item.column;
    }
  }
};

}  // namespace v0
}  // namespace tessera
