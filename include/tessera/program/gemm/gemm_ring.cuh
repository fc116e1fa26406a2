// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_ring`: the matrix product a b^T by mma.sync, as a persistent kernel for sm_80 and later. Schedules and
/// epilogues are those of gemm_cooperative and gemm_pingpong (gemm_cooperative.cuh).
///
/// A thread block computes one tile after the other; a warp has 64 x 64 or 96 x 64 of its sums. Stages of both operands
/// pass through a ring (tile/cuda/sm_80/swizzled_ring.cuh) that goes on from tile to tile. The epilogue is called for
/// 16 rows and 64 columns of a warp at a time, with the number of the work item if it takes one. A row of a tile
/// belongs to several warps: an epilogue that keeps states of rows has a `scratch_type` for each 16 rows of a warp, and
/// join(), which is called after a tile of which ends() said that warps' states are to be joined, for the rows of one
/// warp. Others have one for each warp.
///
/// Cost of a step of 128 x 128 sums and 128 bytes of depth in 16 bits: 2.1e6 operations, 32 KiB from L2, 64 KiB from
/// shared memory; a warp has 128 products of 16 x 8 x 16. Of 192 x 256 sums: 6.3e6, 56 and 160 KiB, and 192. Sums are
/// added up from the first to the last column of the depth.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/shape.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_80/stage_rows.cuh>
#include <tessera/tile/cuda/sm_80/swizzled_ring.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

template <class Operand, class Schedule, class Epilogue, gemm_ring_policy Policy>
struct gemm_ring {
  using operand_type = typename gemm_operand<Operand>::value_type;
  static constexpr int lanes = Policy.lanes;
  static constexpr int from_architecture = 800;
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr bool is_persistent = true;
  static constexpr int rows = Policy.rows;                                    ///< rows of a tile
  static constexpr int columns = Policy.columns;                              ///< columns of a tile
  static constexpr int depth = 128 / static_cast<int>(sizeof(operand_type));  ///< depth of a stage
  static_assert(Policy.bytes == 128, "tessera: stages of this program have 128 bytes of the depth");
  /// The group that runs it.
  using group_type = cuda_block<lanes>;
  using mma = gemm_tile<Operand, shape<rows, columns, depth / 4>, group_type>;
  /// How a tile lies in registers.
  using registers = typename mma::registers;
  static constexpr int warps = lanes / 32;
  static constexpr int row_warps = registers::grid::columns;  ///< warps that share a row of a tile
  /// Whether the epilogue keeps states of rows from tile to tile.
  static constexpr bool keeps_rows = requires(Epilogue const& epilogue) { epilogue.ends(0); };
  static_assert(registers::column_tiles == 8, "tessera: a warp of this program has 64 columns");

  using ring_type = swizzled_ring<mma, Policy.stages>;         ///< stages of both operands
  using rows_of_a = stage_rows<operand_type, rows, lanes>;     ///< how a lane copies rows of a
  using rows_of_b = stage_rows<operand_type, columns, lanes>;  ///< how a lane copies rows of b

  struct scratch_type {
    ring_type ring;                                                                         ///< stages of both operands
    typename Epilogue::scratch_type of_rows[warps][keeps_rows ? registers::row_tiles : 1];  ///< of the epilogue
    ring_barriers<Policy.stages> barriers;                                                  ///< of the ring
  };

  dense_chunks<operand_type> a;  ///< rows x depth
  dense_chunks<operand_type> b;  ///< columns x depth: the second factor, transposed
  Schedule schedule;
  Epilogue epilogue;

  /// Runs a thread block's work items. A launch has as many thread blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(group_type const& group, std::int64_t block, scratch_type& scratch) const {
    auto const workers = static_cast<std::int32_t>(blocks_in_grid());
    scratch.barriers.begin(group);
    ring_passage<mma, Policy.stages> passage{scratch.ring, scratch.barriers, {}};
    filler fill{*this, group, workers, shared_address(&scratch.ring) + rows_of_a::offset(group.lane),
                open(group, static_cast<std::int32_t>(block), workers)};
    passage.begin(fill);
    typename mma::sum_tile sums;
    for (auto index = static_cast<std::int32_t>(block); index < schedule.count(); index += workers) {
      gemm_work_item const item = schedule.at(index);
      mma::clear(group, sums);
      if (item.k_tiles > 0) {
        multiply_swizzled<swizzled_order::along_depth, swizzled_order::along_depth>(group, passage, item.k_tiles, fill,
                                                                                    sums);
      }
      end_tile(group, scratch, item, sums, index);
    }
    async_copy_wait_all();
  }

 private:
  /// The next stage that is to be filled.
  struct cursor {
    rows_of_a of_a;
    rows_of_b of_b;
    std::int32_t index;    ///< of the next work item
    std::int32_t first;    ///< where the item's list of k-tiles begins
    std::int32_t k_tiles;  ///< of the item; 0 if none is left
    std::int32_t k;        ///< of these
  };

  /// The first stage of the first work item from `index` on that has stages.
  __device__ __forceinline__ cursor open(group_type const& group, std::int32_t index, std::int32_t workers) const {
    gemm_work_item item{0, 0, 0, 0};
    for (; index < schedule.count() && item.k_tiles == 0; index += workers) {
      item = schedule.at(index);
      if constexpr (requires { schedule.tile_of_b(index); }) {
        item.column = schedule.tile_of_b(index);  // b lies in another order
      }
    }
    if (item.k_tiles == 0) {
      return {rows_of_a::none(), rows_of_b::none(), index, 0, 0, 0};
    }
    return {rows_of_a::of(a.matrix, std::int64_t{item.row} * rows, group.lane),
            rows_of_b::of(b.matrix, std::int64_t{item.column} * columns, group.lane),
            index,
            item.first,
            item.k_tiles,
            0};
  }

  /// What fills the ring: the lane's copies of one stage after the other, of all work items.
  struct filler {
    gemm_ring const& program;
    group_type const& group;
    std::int32_t workers;
    std::uint32_t to;  ///< the address of the lane's first chunk in the ring
    cursor at;
    static constexpr std::uint32_t to_b = sizeof(ring_type::a);  ///< bytes from stages of a to those of b

    [[nodiscard]] __device__ __forceinline__ bool has_stage() const { return at.k_tiles > 0; }
    __device__ __forceinline__ void begin(int stage) const {
      std::int32_t const column =
          has_stage() ? program.schedule.k_tile(at.first + at.k) * depth : 0;  // lists may be empty
      auto const number = static_cast<std::uint32_t>(stage);
      at.of_a.begin(program.a.matrix, column, to + number * ring_type::a_bytes, group.lane);
      at.of_b.begin(program.b.matrix, column, to + to_b + number * ring_type::b_bytes, group.lane);
    }
    __device__ __forceinline__ void advance() {
      if (++at.k == at.k_tiles) {
        at = program.open(group, at.index, workers);
      }
    }
  };

  /// Gives a tile's sums to the epilogue, 16 rows at a time.
  __device__ __forceinline__ void end_tile(group_type const& group, scratch_type& scratch, gemm_work_item const& item,
                                           typename mma::sum_tile& sums, std::int32_t index) const {
    auto const at = registers::of(group);
    int const warp = group.lane / 32;
    box_coordinate first{item.column * columns + at.column, item.row * rows + at.row};
    each_sixteen_rows<mma>(sums, [&](int tile, auto& own) {
      auto& of_epilogue = scratch.of_rows[warp][keeps_rows ? tile : 0];
      if constexpr (requires { epilogue(own, first, of_epilogue, index); }) {
        epilogue(own, first, of_epilogue, index);
      } else {
        epilogue(own, first, of_epilogue);
      }
      first.row += 16;
    });
    if constexpr (keeps_rows) {
      if (epilogue.ends(index)) {
        join(group, scratch, item, index);
      }
    }
  }
  /// Lets the first warp of each row join the states of all warps that share its rows.
  __device__ __forceinline__ void join(group_type const& group, scratch_type& scratch, gemm_work_item const& item,
                                       std::int32_t index) const {
    int const warp = group.lane / 32;
    group.sync();  // all warps' states are in scratch
    if (warp % row_warps == 0) {
#pragma unroll 1
      for (int tile = 0; tile < registers::row_tiles; ++tile) {
        epilogue.join(item.row * rows + registers::of(group).row + 16 * tile, &scratch.of_rows[warp][tile],
                      registers::row_tiles, index);
      }
    }
    group.sync();  // before states begin anew
  }
};

}  // namespace v0
}  // namespace tessera
