// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_cooperative`: the matrix product a b^T by sm_90a's tensor cores, as a persistent, warp-specialised
/// cooperative kernel, with tiles from a schedule and an epilogue that takes the sums.
///
/// Each thread block computes tiles of 128 x columns sums, one after the other (the grid fills the chip once). One
/// thread of its producer warpgroup loads k-tiles of a and of b, 128 bytes deep, by TMA into pipeline stages in shared
/// memory. Two consumer warpgroups multiply 64 x columns each and hand the sums, in registers, to the epilogue. Two
/// blocks of a cluster compute tiles one below the other: each loads half of the rows of b for both. While one
/// warpgroup is in its epilogue the other may still multiply, and the next tile's k-tiles are being loaded.
///
/// Cost of 8192^3 in bf16 with 256 columns and clusters of two: 1.1e12 operations; for 4.2e6 of them a block loads 32
/// KiB through L2.
///
/// Operands along the depth are rows x depth in memory. An operand of 2 bytes may lie across it, as depth x rows: then
/// tensor cores turn it while they read shared memory, and add up the same products in the same order.
///
/// A schedule is one of tile/gemm_schedule.hpp; its rows are those of clusters: 128 or 256 rows of a.
///
/// An epilogue is a trivially copyable type with these members. `scratch_type` is a warp's own shared memory, kept from
/// tile to tile. One thread calls prepare(). Whole warps call operator()(sums, coordinate, scratch) for their
/// 16 x columns sums, laid out as warpgroup_mma.cuh says, which it may change, and finish(). An epilogue with a
/// template `deferred_type<registers>` has no operator(), but defer(sums, coordinate, deferred), which keeps the
/// remaining work in registers, and run_deferred<0> and <1>(deferred, coordinate, scratch), which do that work while
/// the tensor cores multiply the next tile: of 240 registers the sums take columns / 2, and the program about 20.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/program/gemm/gemm_pipeline.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// Whether an epilogue defers a part of its work until the next tile's multiplications have begun.
template <class Epilogue>
inline constexpr bool is_deferring = requires {
  typename Epilogue::template deferred_type<4>;
};

/// The work that the epilogue of the tile before has deferred, in registers.
template <class Epilogue, int Registers>
struct deferred_epilogue {
  template <int Half, class Scratch>
  __device__ __forceinline__ void run(Epilogue const&, Scratch&) const {}
};
template <class Epilogue, int Registers>
requires is_deferring<Epilogue>
struct deferred_epilogue<Epilogue, Registers> {
  typename Epilogue::template deferred_type<Registers> state;
  box_coordinate coordinate{0, -1};  // no tile begins in row -1: there is none yet

  template <class Sums>
  __device__ __forceinline__ void take(Epilogue const& epilogue, Sums const& sums, box_coordinate first) {
    epilogue.defer(sums, first, state);
    coordinate = first;
  }
  template <int Half, class Scratch>
  __device__ __forceinline__ void run(Epilogue const& epilogue, Scratch& scratch) const {
    if (coordinate.row >= 0) {
      epilogue.template run_deferred<Half>(state, coordinate, scratch);
    }
  }
};

/// Ends a tile of programs that defer nothing: all of the epilogue's work is done at once.
template <class Epilogue, class Sum, int Registers>
__device__ __forceinline__ void finish_at_once(Epilogue const& epilogue, Sum (&sums)[Registers], box_coordinate first,
                                               typename Epilogue::scratch_type& scratch) {
  if constexpr (is_deferring<Epilogue>) {
    deferred_epilogue<Epilogue, Registers> work;
    work.take(epilogue, sums, first);
    work.template run<0>(epilogue, scratch);
    work.template run<1>(epilogue, scratch);
  } else {
    epilogue(sums, first, scratch);
  }
}

}  // namespace detail

/// Operands: how elements are multiplied, or ordered_operands.
template <class Operands, class Schedule, class Epilogue, warpgroup_gemm_policy Policy>
struct gemm_cooperative {
  using shape = warpgroup_gemm_shape;
  using stages_type = gemm_stages<Operands, Policy>;
  using orders = typename stages_type::orders;  ///< how the operands lie
  using of_a = typename stages_type::of_a;      ///< how a is loaded
  using of_b = typename stages_type::of_b;      ///< how b is loaded
  using mma = warpgroup_mma<typename orders::operand, Policy.columns, orders::a, orders::b>;
  static constexpr int lanes = stages_type::lanes;
  static constexpr int blocks_per_cluster = Policy.blocks;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  static constexpr int rows = stages_type::rows;              ///< rows of a cluster's tile
  static constexpr int columns = stages_type::columns;        ///< columns of a cluster's tile
  static constexpr int b_box_rows = stages_type::b_box_rows;  ///< rows of b that a block loads; of a it loads 128
  static constexpr int depth = stages_type::depth;            ///< depth of a k-tile, and of all boxes
  static constexpr int a_bytes = stages_type::a_bytes;
  static constexpr int b_bytes = stages_type::b_bytes;

  struct scratch_type {
    alignas(1024) unsigned char a[Policy.stages][a_bytes];
    alignas(1024) unsigned char b[Policy.stages][b_bytes];
    typename Epilogue::scratch_type of_warp[4 * shape::consumers];  ///< scratch of the epilogue, for each warp
    /// `full` completes when a stage's k-tile is loaded, `empty` when all blocks of the cluster have used it.
    stage_ring<Policy.stages> ring;
  };

  tensor_map a;  ///< with boxes of_a::box
  tensor_map b;  ///< with boxes of_b::box
  Schedule schedule;
  Epilogue epilogue;

  /// Runs the thread block's work items. A launch has as many blocks as run at a time, or fewer.
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
        stages_type::produce(scratch, a, b, schedule, first_item);
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
  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(a);
    prefetch_tensor_map(b);
    epilogue.prepare();
    constexpr int releases = Policy.blocks * shape::consumers * 4;  // one of each consumer warp
    scratch.ring.init(1, releases);
    fence_barrier_init();
  }

  __device__ __forceinline__ void consume(scratch_type& scratch, std::int32_t first_item, int consumer,
                                          int lane) const {
    int const warp = uniform(lane / 32);
    std::int32_t const first_row = stages_type::rank() * shape::block_rows + consumer * mma::rows + warp * 16;
    typename Epilogue::scratch_type& own = scratch.of_warp[4 * consumer + warp];
    state_type state;
    typename mma::sum_type sums[mma::registers];
    detail::deferred_epilogue<Epilogue, mma::registers> deferred;
    std::int32_t index = first_item;
    gemm_work_item item = look_up(index);
    while (index < schedule.count()) {
      index += stages_type::stride();
      box_coordinate const first{item.column * columns, item.row * rows + first_row};
      if (item.k_tiles > 0) {
        item = multiply_tile(scratch, consumer, state, sums, deferred, own, item.k_tiles, index);
      } else {
        deferred.template run<0>(epilogue, own);
        deferred.template run<1>(epilogue, own);
        clear(sums);
        item = look_up(index);
      }
      if constexpr (detail::is_deferring<Epilogue>) {
        deferred.take(epilogue, sums, first);
      } else {
        epilogue(sums, first, own);
      }
    }
    deferred.template run<0>(epilogue, own);
    deferred.template run<1>(epilogue, own);
    epilogue.finish();
  }

  /// Multiplies the k-tiles of a tile. One k-tile is multiplied while the next is awaited; a stage is released when the
  /// next k-tile's multiplications have begun. After the first two k-tiles come the halves of what the epilogue of the
  /// tile before has deferred. Returns work item number `next`, which is looked up while tensor cores are busy.
  __device__ __forceinline__ gemm_work_item multiply_tile(scratch_type& scratch, int consumer, state_type& state,
                                                          typename mma::sum_type (&sums)[mma::registers],
                                                          detail::deferred_epilogue<Epilogue, mma::registers>& deferred,
                                                          typename Epilogue::scratch_type& own, std::int32_t k_tiles,
                                                          std::int32_t next) const {
    operand_pair const operands{of_a::descriptor(detail::plain_shared_address(scratch.a[0]) +
                                                 static_cast<std::uint32_t>(consumer * mma::rows * shape::depth_bytes)),
                                of_b::descriptor(detail::plain_shared_address(scratch.b[0]))};
    pin_registers(sums);
    product_reader reads(scratch.ring, state, typename stages_type::release_type{});
    for (pipeline_step const at : pipelined(reads, {0, 1})) {
      multiply_stage(operands, at.stage, sums, false);
    }
    gemm_work_item const item = look_up(next);
    deferred.template run<0>(epilogue, own);
    std::int32_t k = 1;
    if (detail::is_deferring<Epilogue> && k_tiles > 1) {
      for (pipeline_step const at : pipelined(reads, {1, 2})) {
        multiply_stage(operands, at.stage, sums, true);
      }
      k = 2;
    }
    deferred.template run<1>(epilogue, own);
    for (pipeline_step const at : pipelined(reads, {k, k_tiles})) {
      multiply_stage(operands, at.stage, sums, true);
    }
    reads.finish(sums);
    return item;
  }

  /// Looks up work item number `index`, if there is one, here and now: the compiler would rather compute it where it is
  /// used.
  __device__ __forceinline__ gemm_work_item look_up(std::int32_t index) const {
    gemm_work_item const item = index < schedule.count() ? schedule.at(index) : gemm_work_item{};
    std::int32_t words[3] = {item.row, item.column, item.k_tiles};
    pin_registers(words);
    return {words[0], words[1], 0, words[2]};
  }

  __device__ __forceinline__ static void clear(typename mma::sum_type (&sums)[mma::registers]) {
#pragma unroll
    for (int i = 0; i < mma::registers; ++i) {
      sums[i] = typename mma::sum_type{};
    }
  }

  /// Descriptors of this warpgroup's rows of a, and of b, in the first pipeline stage.
  struct operand_pair {
    matrix_descriptor a;
    matrix_descriptor b;
  };

  /// Starts to multiply the k-tile in a stage. Without `add` the old sums count as zero.
  __device__ __forceinline__ static void multiply_stage(operand_pair operands, int stage,
                                                        typename mma::sum_type (&sums)[mma::registers], bool add) {
    begin_multiply();
    matrix_descriptor const a_stage = operands.a.further(stage * a_bytes);
    matrix_descriptor const b_stage = operands.b.further(stage * b_bytes);
#pragma unroll
    for (int step = 0; step < shape::depth_bytes / 32; ++step) {
      mma::multiply(sums, a_stage.further(step * of_a::bytes_of_step), b_stage.further(step * of_b::bytes_of_step),
                    add || step != 0);
    }
    commit_multiply();
  }
};

}  // namespace v0
}  // namespace tessera
