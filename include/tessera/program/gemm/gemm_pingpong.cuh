// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_pingpong`: the matrix product a b^T by sm_90a's tensor cores, as a persistent, warp-specialised ping-pong
/// kernel. It is for epilogues that take long and need the sums in registers: while one consumer warpgroup is in its
/// epilogue the other multiplies.
///
/// Schedules and epilogues are those of gemm_cooperative (gemm_cooperative.cuh). Here each of the two consumer
/// warpgroups has its own tiles, of 128 x columns: a block's work items go to the two alternately. A warpgroup begins a
/// tile when the last k-tile of the other is loaded, so that tensor cores are idle no longer between tiles than between
/// k-tiles. For 128 x 192 the sums take 192 of 240 registers. Tiles are a quarter smaller than 128 x 256, so that 17 %
/// more bytes are loaded for each operation.
///
/// With twice as many workers as clusters, worker `i % workers` of a schedule is always the same warpgroup, which can
/// keep the state of a reduction. Warp w of it has rows 16 w to 16 w + 15 and 64 + 16 w to 79 + 16 w of a block. The
/// epilogue is called for each of these two halves, with a `scratch_type` of its own, and with the number of the work
/// item as a fourth argument if it takes one.
///
/// A schedule may have a member `waits_first`, if nothing that it and the operands are read from is written by the
/// stream's last kernel, or only where the member is true. Then tiles are multiplied while that kernel still ends, and
/// epilogues alone wait for it.
#pragma once

#include <cstdint>

#include <tessera/program/gemm/gemm_pipeline.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_turns.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

template <class Operand, class Schedule, class Epilogue, warpgroup_gemm_policy Policy>
struct gemm_pingpong {
  using shape = warpgroup_gemm_shape;
  using stages_type = gemm_stages<Operand, Policy>;
  using mma = warpgroup_mma<Operand, Policy.columns>;
  static constexpr int lanes = stages_type::lanes;
  static constexpr int blocks_per_cluster = Policy.blocks;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  /// Whether the program waits for the stream by itself, when its schedule says.
  static constexpr bool waits_for_stream = requires(Schedule const& some) { some.waits_first; };
  static constexpr int rows = stages_type::rows;              ///< rows of a cluster's tile
  static constexpr int columns = stages_type::columns;        ///< columns of a cluster's tile
  static constexpr int b_box_rows = stages_type::b_box_rows;  ///< rows of the boxes of b; boxes of a have 128
  static constexpr int depth = stages_type::depth;            ///< depth of a k-tile, and of all boxes
  static constexpr int a_bytes = stages_type::a_bytes;
  static constexpr int b_bytes = stages_type::b_bytes;
  static constexpr int halves = shape::block_rows / mma::rows;  ///< halves of a tile: the 64 rows of an instruction

  struct scratch_type {
    alignas(1024) unsigned char a[Policy.stages][a_bytes];
    alignas(1024) unsigned char b[Policy.stages][b_bytes];
    typename Epilogue::scratch_type of_rows[shape::consumers][4][halves];  ///< scratch of the epilogue
    /// `full` completes when a stage's k-tile is loaded, `empty` when all blocks of the cluster have used it.
    stage_ring<Policy.stages> ring;
    warpgroup_turns<shape::consumers> turns;  ///< one begins when the other warpgroup's last k-tile is loaded
  };

  tensor_map a;
  tensor_map b;
  Schedule schedule;
  Epilogue epilogue;

  /// Runs the thread block's work items. A launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    if constexpr (!waits_for_stream) {
      if (schedule.count() == 0) {
        return;
      }
    }
    if (group.lane == 0) {
      prepare(scratch);
    }
    stages_type::sync_all(group);
    if constexpr (waits_for_stream) {
      let_next_kernel_start();
      if (schedule.waits_first) {
        wait_for_stream();
      }
    }
    auto const first_item = static_cast<std::int32_t>(block / Policy.blocks);
    int const warpgroup = uniform(group.lane / shape::warpgroup);
    if (warpgroup == 0) {
      lower_registers<Policy.producer_registers>();
      if (group.lane == 0) {
        stages_type::produce(scratch, a, map_of_b(), schedule, first_item);
      }
    } else {
      raise_registers<Policy.consumer_registers>();
      consume(scratch, first_item, warpgroup - 1, group.lane % shape::warpgroup);
    }
    sync_warp();
    if constexpr (waits_for_stream) {
      wait_for_stream();  // in threads without a tile, too
    }
    stages_type::sync_all(group);  // no block ends while the other still writes to its shared memory
  }

 private:
  using state_type = typename stages_type::state_type;
  /// The type of the sums of a tile.
  using sum_type = typename mma::sum_type;

  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(a);
    prefetch_tensor_map(b);
    epilogue.prepare();
    constexpr int releases = Policy.blocks * 4;  // one of each warp of a consumer warpgroup
    scratch.ring.init(1, releases);
    scratch.turns.init();
    fence_barrier_init();
  }

  /// The map of b. A schedule may choose another one, by what only the device knows.
  __device__ __forceinline__ tensor_map const& map_of_b() const {
    if constexpr (requires { schedule.map_of_b(b); }) {
      return schedule.map_of_b(b);
    } else {
      return b;
    }
  }

  __device__ __forceinline__ void consume(scratch_type& scratch, std::int32_t first_item, int consumer,
                                          int lane) const {
    int const warp = uniform(lane / 32);
    std::int32_t const first_row = stages_type::rank() * shape::block_rows + warp * 16;
    state_type state;
    sum_type sums[halves][mma::registers];
    if (consumer == 1) {
      state.skip(k_tiles_of(first_item));
    }
    for (std::int32_t number = consumer; first_item + number * stages_type::stride() < schedule.count(); number += 2) {
      std::int32_t const index = first_item + number * stages_type::stride();
      gemm_work_item const item = schedule.at(index);
      std::int32_t const k_tiles = uniform(item.k_tiles);
      scratch.turns.take(consumer, number / 2);
      if (k_tiles > 0) {
        state.agree();
        multiply_tile(scratch, consumer, state, sums, k_tiles);
      } else {
        scratch.turns.pass(consumer);
        clear(sums);
      }
      state.skip(k_tiles_of(index + stages_type::stride()));
      if constexpr (waits_for_stream) {
        wait_for_stream();
      }
      // The epilogue is compiled once, for the half that lies in the first registers: for both halves it took twice the
      // time to compile. The moves take less than 1 % of a tile's issue slots, and the other warpgroup multiplies.
      box_coordinate first{item.column * columns, item.row * rows + first_row};
#pragma unroll 1
      for (int half = 0; half < halves; ++half) {
        pin_register(first.column);  // else what the epilogue makes of it leaves the loop, and takes registers
        if constexpr (requires { epilogue(sums[0], first, scratch.of_rows[consumer][warp][half], index); }) {
          epilogue(sums[0], first, scratch.of_rows[consumer][warp][half], index);
        } else {
          epilogue(sums[0], first, scratch.of_rows[consumer][warp][half]);
        }
        move_up(sums);
        first.row += mma::rows;
      }
    }
    epilogue.finish();
  }

  __device__ __forceinline__ std::int32_t k_tiles_of(std::int32_t index) const {
    return index < schedule.count() ? schedule.at(index).k_tiles : 0;
  }

  /// Multiplies the k-tiles of a tile. One k-tile is multiplied while the next is awaited; a stage is released when the
  /// next k-tile's multiplications have begun. When the last k-tile is loaded it is the other warpgroup's turn.
  __device__ __forceinline__ void multiply_tile(scratch_type& scratch, int consumer, state_type& state,
                                                sum_type (&sums)[halves][mma::registers], std::int32_t k_tiles) const {
    operand_pair const operands{matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(scratch.a[0])),
                                matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(scratch.b[0]))};
    pin(sums);
    product_reader reads(scratch.ring, state, typename stages_type::release_type{});
    multiply_in_turn(reads, scratch.turns, consumer, k_tiles,
                     [&](pipeline_step const& at, bool adds) { multiply_stage(operands, at.stage, sums, adds); });
    reads.finish(sums);
  }

  __device__ __forceinline__ static void pin(sum_type (&sums)[halves][mma::registers]) {
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      pin_registers(sums[half]);
    }
  }
  /// Moves the sums of each half into the registers of the half before it.
  __device__ __forceinline__ static void move_up(sum_type (&sums)[halves][mma::registers]) {
#pragma unroll
    for (int i = 0; i < (halves - 1) * mma::registers; ++i) {
      sums[i / mma::registers][i % mma::registers] = sums[i / mma::registers + 1][i % mma::registers];
    }
  }
  __device__ __forceinline__ static void clear(sum_type (&sums)[halves][mma::registers]) {
#pragma unroll
    for (int i = 0; i < halves * mma::registers; ++i) {
      sums[i / mma::registers][i % mma::registers] = sum_type{};
    }
  }

  /// Descriptors of the block's rows of a, and of b, in the first pipeline stage.
  struct operand_pair {
    matrix_descriptor a;
    matrix_descriptor b;
  };

  /// Starts to multiply the k-tile in a stage. Without `add` the old sums count as zero.
  __device__ __forceinline__ static void multiply_stage(operand_pair operands, int stage,
                                                        sum_type (&sums)[halves][mma::registers], bool add) {
    begin_multiply();
    matrix_descriptor const a_stage = operands.a.further(stage * a_bytes);
    matrix_descriptor const b_stage = operands.b.further(stage * b_bytes);
#pragma unroll
    for (int bytes = 0; bytes < shape::depth_bytes; bytes += 32) {
#pragma unroll
      for (int half = 0; half < halves; ++half) {
        mma::multiply(sums[half], a_stage.further(half * mma::rows * shape::depth_bytes + bytes),
                      b_stage.further(bytes), add || bytes != 0);
      }
    }
    commit_multiply();
  }
};

}  // namespace v0
}  // namespace tessera
