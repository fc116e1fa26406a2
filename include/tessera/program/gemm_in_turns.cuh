// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_in_turns`: the matrix product a b^T by sm_90a's tensor cores, for epilogues that take long and need the sums
/// in registers: while one warpgroup is in its epilogue the other multiplies.
///
/// As gemm_on_warpgroups (schedules and epilogues are described there), but each of the two warpgroups has tiles of its
/// own, of 128 x columns: a block's works go to one and the other in turn. A warpgroup begins with a tile when the
/// other's last piece has come, so tensor cores are idle between tiles for no longer than between pieces. For 128 x 192
/// the sums take 192 of 240 registers; pieces are a quarter smaller, so 17 % more is copied for each operation than for
/// tiles of 128 x 256.
///
/// With twice as many workers as clusters, worker `i % workers` of a schedule is always the same warpgroup: it can keep
/// what it reduces. Its warps have rows 16 w to 16 w + 15 and 64 + 16 w to 79 + 16 w of a block; an epilogue is called
/// for either with a `scratch_type` of its own, and with the number of the work as a fourth argument if it takes one.
#pragma once

#include <cstdint>

#include <tessera/program/gemm_on_warpgroups.cuh>
#include <tessera/tile/cuda/barrier.cuh>
#include <tessera/tile/cuda/bulk_tensor.cuh>
#include <tessera/tile/cuda/cluster.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/register_budget.cuh>
#include <tessera/tile/cuda/ring_place.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/warpgroup_mma.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tuning/linear.hpp>

namespace tessera {
inline namespace v0 {

template <class Operand, class Schedule, class Epilogue, warpgroup_gemm_policy Policy>
struct gemm_in_turns {
  using shape = warpgroup_gemm_shape;
  using mma = warpgroup_mma<Operand, Policy.columns>;
  static_assert(Policy.blocks == 1 || Policy.blocks == 2, "tessera: clusters of this program have 1 or 2 blocks");
  static constexpr int lanes = shape::warpgroup * (1 + shape::consumers);
  static constexpr int blocks_per_cluster = Policy.blocks;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  static constexpr int rows = shape::block_rows * Policy.blocks;     ///< of a cluster's tile
  static constexpr int columns = Policy.columns;                     ///< likewise
  static constexpr int b_box_rows = Policy.columns / Policy.blocks;  ///< of the boxes of b; those of a have 128
  static constexpr int depth =                                       ///< of a piece, and of all boxes
      shape::depth_bytes / static_cast<int>(sizeof(typename gemm_operand<Operand>::value_type));
  static constexpr int a_bytes = shape::block_rows * shape::depth_bytes;
  static constexpr int b_bytes = Policy.columns * shape::depth_bytes;
  static constexpr int halves = shape::block_rows / mma::rows;  ///< of a tile: 64 rows, which an instruction has

  struct scratch_type {
    alignas(1024) unsigned char a[Policy.stages][a_bytes];
    alignas(1024) unsigned char b[Policy.stages][b_bytes];
    typename Epilogue::scratch_type of_rows[shape::consumers][4][halves];
    shared_barrier full[Policy.stages];     ///< a piece is there
    shared_barrier empty[Policy.stages];    ///< all blocks of the cluster have multiplied with a piece
    shared_barrier turn[shape::consumers];  ///< the other warpgroup's pieces have all come
  };

  tensor_map a;
  tensor_map b;
  Schedule schedule;
  Epilogue epilogue;

  /// The launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    if (schedule.count() == 0) {
      return;
    }
    if (group.lane == 0) {
      prepare(scratch);
    }
    sync_all(group);
    const auto first_work = static_cast<std::int32_t>(block / Policy.blocks);
    const int warpgroup = __shfl_sync(0xffffffffU, group.lane / shape::warpgroup, 0);
    if (warpgroup == 0) {
      lower_registers<Policy.producer_registers>();
      if (group.lane == 0) {
        produce(scratch, first_work);
      }
    } else {
      raise_registers<Policy.consumer_registers>();
      consume(scratch, first_work, warpgroup - 1, group.lane % shape::warpgroup);
    }
    __syncwarp();
    sync_all(group);  // no block ends while the other still writes to its shared memory
  }

 private:
  using place_type = ring_place<Policy.stages>;
  using sum_type = typename mma::sum_type;

  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(a);
    prefetch_tensor_map(b);
    epilogue.prepare();
    constexpr int releases = Policy.blocks * 4;  // a warp each, of one warpgroup
    for (int stage = 0; stage < Policy.stages; ++stage) {
      scratch.full[stage].init(1);
      scratch.empty[stage].init(releases);
    }
    for (shared_barrier& turn : scratch.turn) {
      turn.init(4);
    }
    fence_barrier_init();
  }

  /// All threads of all blocks of the cluster.
  __device__ __forceinline__ static void sync_all(cuda_block<lanes> const& group) {
    if constexpr (Policy.blocks == 1) {
      group.sync();
    } else {
      sync_cluster();
    }
  }
  __device__ __forceinline__ static std::int32_t rank() {
    if constexpr (Policy.blocks == 1) {
      return 0;
    } else {
      return static_cast<std::int32_t>(rank_in_cluster());
    }
  }
  /// From one work of a block to its next.
  __device__ __forceinline__ static std::int32_t stride() {
    return static_cast<std::int32_t>(gridDim.x) / Policy.blocks;
  }

  __device__ __forceinline__ void produce(scratch_type& scratch, std::int32_t first_work) const {
    const std::int32_t own = rank();
    const std::int32_t count = schedule.count();
    place_type place;
    for (std::int32_t index = first_work; index < count; index += stride()) {
      const gemm_work work = schedule.at(index);
      const std::int32_t row = work.row * rows + own * shape::block_rows;
      const std::int32_t column = work.column * columns + own * b_box_rows;
      for (std::int32_t k = 0; k < work.pieces; ++k) {
        const std::int32_t first = schedule.piece(work.first + k) * depth;
        shared_barrier& full = scratch.full[place.stage];
        scratch.empty[place.stage].wait(place.phase ^ 1);
        full.arrive_and_expect(a_bytes + b_bytes);
        load_box(scratch.a[place.stage], a, full, {first, row});
        if constexpr (Policy.blocks == 1) {
          load_box(scratch.b[place.stage], b, full, {first, column});
        } else {
          constexpr std::uint16_t everyone = (1 << Policy.blocks) - 1;
          load_box_for_cluster(scratch.b[place.stage] + own * (b_bytes / Policy.blocks), b, full, {first, column},
                               everyone);
        }
        place.advance();
      }
    }
  }

  __device__ __forceinline__ void consume(scratch_type& scratch, std::int32_t first_work, int consumer,
                                          int lane) const {
    const int warp = __shfl_sync(0xffffffffU, lane / 32, 0);
    const std::int32_t first_row = rank() * shape::block_rows + warp * 16;
    const std::int32_t count = schedule.count();
    place_type place;
    unsigned turn = consumer == 0 ? 1 : 0;  // the first one's first turn has come
    sum_type sums[halves][mma::registers];
    if (consumer == 1) {
      place.skip(pieces_of(first_work));
    }
    for (std::int32_t index = first_work + consumer * stride(); index < count; index += 2 * stride()) {
      const gemm_work work = schedule.at(index);
      const std::int32_t pieces = __shfl_sync(0xffffffffU, work.pieces, 0);
      scratch.turn[consumer].wait(turn);
      turn ^= 1;
      if (pieces > 0) {
        place.agree();
        multiply_tile(scratch, consumer, place, sums, pieces);
      } else {
        give_turn(scratch, consumer);
        clear(sums);
      }
      place.skip(pieces_of(index + stride()));
#pragma unroll
      for (int half = 0; half < halves; ++half) {
        const box_place first{work.column * columns, work.row * rows + first_row + half * mma::rows};
        if constexpr (requires { epilogue(sums[half], first, scratch.of_rows[consumer][warp][half], index); }) {
          epilogue(sums[half], first, scratch.of_rows[consumer][warp][half], index);
        } else {
          epilogue(sums[half], first, scratch.of_rows[consumer][warp][half]);
        }
      }
    }
    epilogue.finish();
  }

  __device__ __forceinline__ std::int32_t pieces_of(std::int32_t index) const {
    return index < schedule.count() ? schedule.at(index).pieces : 0;
  }

  /// One piece is multiplied while the next is awaited; a piece is given back when the next one's multiplications have
  /// begun. When the last has come it is the other warpgroup's turn.
  __device__ __forceinline__ void multiply_tile(scratch_type& scratch, int consumer, place_type& place,
                                                sum_type (&sums)[halves][mma::registers], std::int32_t pieces) const {
    const operand_pair operands{matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(scratch.a[0])),
                                matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(scratch.b[0]))};
    pin(sums);
    int before = place.stage;
    scratch.full[place.stage].wait(place.phase);
    if (pieces == 1) {
      give_turn(scratch, consumer);
    }
    multiply_piece(operands, place, sums, false);
    for (std::int32_t k = 1; k < pieces; ++k) {
      const int stage = place.stage;
      scratch.full[stage].wait(place.phase);
      if (k == pieces - 1) {
        give_turn(scratch, consumer);
      }
      multiply_piece(operands, place, sums, true);
      await_multiply<1>();
      release(scratch, before);
      before = stage;
    }
    await_multiply<0>();
    pin(sums);
    release(scratch, before);
  }

  /// To the other warpgroup.
  __device__ __forceinline__ static void give_turn(scratch_type& scratch, int consumer) {
    if (threadIdx.x % 32 == 0) {
      scratch.turn[1 - consumer].arrive();
    }
  }
  __device__ __forceinline__ static void pin(sum_type (&sums)[halves][mma::registers]) {
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      pin_registers(sums[half]);
    }
  }
  __device__ __forceinline__ static void clear(sum_type (&sums)[halves][mma::registers]) {
#pragma unroll
    for (int i = 0; i < halves * mma::registers; ++i) {
      sums[i / mma::registers][i % mma::registers] = sum_type{};
    }
  }

  /// Of the block's rows of a and of b, in the first piece of the ring.
  struct operand_pair {
    matrix_descriptor a;
    matrix_descriptor b;
  };

  /// Starts to multiply the piece at `place`, which is there, and moves on. Not `add`: the old sums count as zero.
  __device__ __forceinline__ static void multiply_piece(operand_pair operands, place_type& place,
                                                        sum_type (&sums)[halves][mma::registers], bool add) {
    begin_multiply();
    const matrix_descriptor a_piece = operands.a.further(place.stage * a_bytes);
    const matrix_descriptor b_piece = operands.b.further(place.stage * b_bytes);
#pragma unroll
    for (int bytes = 0; bytes < shape::depth_bytes; bytes += 32) {
#pragma unroll
      for (int half = 0; half < halves; ++half) {
        mma::multiply(sums[half], a_piece.further(half * mma::rows * shape::depth_bytes + bytes),
                      b_piece.further(bytes), add || bytes != 0);
      }
    }
    commit_multiply();
    place.advance();
  }

  /// To the producers of all blocks of the cluster.
  __device__ __forceinline__ static void release(scratch_type& scratch, int stage) {
    const unsigned lane = threadIdx.x % 32;
    if constexpr (Policy.blocks == 1) {
      if (lane == 0) {
        scratch.empty[stage].arrive();
      }
    } else if (lane < Policy.blocks) {
      scratch.empty[stage].arrive_at(lane);
    }
  }
};

}  // namespace v0
}  // namespace tessera
