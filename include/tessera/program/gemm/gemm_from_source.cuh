// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_from_source`: the matrix product a b^T by sm_90a's tensor cores where b is any TileSource: codes that are
/// decoded on the way, gathered rows, a user's own.
///
/// A persistent, warp-specialised kernel, as gemm_cooperative is. Two consumer warpgroups multiply half of a tile's
/// rows each. One or two producer warpgroups fill the pipeline stages and take turns: one thread starts the TMA load of
/// a's k-tile, and all of them make b's k-tile and write it as wgmma takes it (tile/swizzled_tile.hpp). A source that
/// is a FetchedSource has its next k-tiles on their way to registers while others are multiplied; of any other, load()
/// is called when a stage is free. Both sides are words (tile/cuda/sm_90/pipelined_ring.cuh). Their speed on one H200
/// over that of loops of producers by hand, in turns, with 512, 4096 and 16384 tokens: codes of 8 bits 1.009, 0.984 and
/// 0.993, of 4 bits 0.998, 1.004 and 1.003, NeuZip's codes 1.014, 1.012 and 1.006.
///
/// Cost of 4096 x 8192 x 8192 in bf16 with tiles of 256 x 128: 5.5e11 operations. A k-tile keeps the tensor cores busy
/// for 1024 cycles, in which shared memory moves 144 KiB (wgmma reads 96, TMA writes 32 and producers 16) of the 128
/// bytes a cycle that it can: 1152 cycles, so that 0.89 of the tensor cores' rate is the most. Decoding 8192 codes
/// takes producers 4 to 5 instructions a code, 256 to 320 issue slots of each of the four schedulers, and 512 cycles of
/// the unit that converts integers. tuning/gemm/linear.hpp has measurements.
///
/// Epilogues are those of gemm_cooperative; none of their work is deferred.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/gemm/gemm_cooperative.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/cuda_warpgroup.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tile/source/fetched_source.hpp>
#include <tessera/tile/swizzled_tile.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

template <class Operand, TileSource B, class Epilogue, source_gemm_policy Policy>
struct gemm_from_source {
  using value_type = typename gemm_operand<Operand>::value_type;
  using mma = warpgroup_mma<Operand, Policy.columns>;
  using state_type = pipeline_state<Policy.stages>;
  /// A k-tile of the weights in shared memory.
  using b_tile = swizzled_tile<value_type, Policy.columns>;
  static constexpr int consumers = 2;                     ///< warpgroups that multiply
  static constexpr int warpgroup = cuda_warpgroup::size;  ///< lanes of a warpgroup
  static constexpr int lanes = warpgroup * (Policy.producers + consumers);
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  static constexpr int rows = Policy.rows;                                          ///< rows of a tile
  static constexpr int columns = Policy.columns;                                    ///< columns of a tile
  static constexpr int row_blocks = rows / (consumers * mma::rows);                 ///< blocks of 64 rows of a consumer
  static constexpr int depth_bytes = 128;                                           ///< of a row of a k-tile
  static constexpr int depth = depth_bytes / static_cast<int>(sizeof(value_type));  ///< depth of a k-tile
  static constexpr int a_bytes = rows * depth_bytes;
  static constexpr int b_bytes = columns * depth_bytes;
  static_assert(std::is_same_v<typename B::value_type, value_type>, "tessera: the source has elements of the operand");
  static_assert(has_register_budgets(Policy.producers + consumers, Policy.producers* Policy.producer_registers +
                                                                       consumers * Policy.consumer_registers),
                "tessera: warpgroups cannot have more registers together than at the kernel's entry");
  static_assert(Policy.stages % Policy.producers == 0, "tessera: producers take turns at the pipeline's stages");
  static_assert(row_blocks * consumers * mma::rows == rows && b_tile::columns == depth && sizeof(b_tile) == b_bytes);

  struct scratch_type {
    alignas(1024) unsigned char a[Policy.stages][a_bytes];   ///< the inputs' k-tiles, written by TMA
    b_tile b[Policy.stages];                                 ///< the weights' k-tiles, written by producers
    typename Epilogue::scratch_type of_warp[4 * consumers];  ///< scratch of the epilogue, for each warp
    /// `full` completes when a stage's k-tile is there, `empty` when all consumers have multiplied with it.
    stage_ring<Policy.stages> ring;
  };

  tensor_map a;             ///< the inputs, for TMA
  B b;                      ///< the weights
  dense_schedule schedule;  ///< which tile a thread block computes next
  Epilogue epilogue;        ///< what becomes of a tile's sums

  /// Runs the thread block's tiles. A launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    if (group.lane == 0) {
      prepare(scratch);
    }
    group.sync();
    auto const first_item = static_cast<std::int32_t>(block);
    int const which = uniform(group.lane / warpgroup);
    if (which < Policy.producers) {
      lower_registers<Policy.producer_registers>();
      produce(scratch, first_item, which);
    } else {
      raise_registers<Policy.consumer_registers>();
      consume(scratch, first_item, which - Policy.producers, group.lane % warpgroup);
    }
  }

 private:
  using sum_type = typename mma::sum_type;
  using in_flight_type = source_in_flight<B, cuda_warpgroup, b_tile>;
  /// K-tiles that a producer has on their way, for which a thread has up to 128 bytes of registers.
  static constexpr int ahead = sizeof(in_flight_type) <= 64 ? 2 : 1;

  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(a);
    epilogue.prepare();
    constexpr int fills = 1 + 4;  // the thread that starts a's load, and the warps that write b's k-tile
    scratch.ring.init(fills, 4 * consumers);
    fence_barrier_init();
  }
  __device__ __forceinline__ static std::int32_t stride() { return static_cast<std::int32_t>(blocks_in_grid()); }

  /// The place of a k-tile among all those of a block's tiles, one tile after the other.
  struct k_tile_cursor {
    std::int32_t index;       ///< number of the work item; beyond the last there is no k-tile
    std::int32_t k;           ///< number of the k-tile
    std::int32_t row = 0;     ///< first row of its tile
    std::int32_t column = 0;  ///< first column of its tile
  };
  __device__ __forceinline__ void look_up(k_tile_cursor& at) const {
    if (at.index < schedule.count()) {
      gemm_work_item const item = schedule.at(at.index);
      at.row = item.row * rows;
      at.column = item.column * columns;
    }
  }
  __device__ __forceinline__ void skip(k_tile_cursor& at, std::int32_t k_tiles) const {
    at.k += k_tiles;
    if (at.k >= schedule.k_tiles) {
      do {
        at.k -= schedule.k_tiles;
        at.index += stride();
      } while (at.k >= schedule.k_tiles);
      look_up(at);
    }
  }

  /// A producer warpgroup: makes every Policy.producers-th k-tile of the block.
  __device__ __forceinline__ void produce(scratch_type& scratch, std::int32_t first_item, int which) const {
    cuda_warpgroup const group(which, 1 + which);
    k_tile_cursor next{first_item, 0};
    look_up(next);
    skip(next, which);
    k_tile_cursor last = next;  // the next one to fetch
    state_type state;
    state.skip(which);
    in_flight_type in_flight[ahead];
    std::int32_t const items = divide_up(max(schedule.count() - first_item, 0), stride());
    pipelined(ring_filler(state), {which, items * schedule.k_tiles, Policy.producers})
        .each_fetched(
            in_flight,
            [&](int, in_flight_type& to) {
              if constexpr (in_flight_type::is_fetched) {
                b.fetch(group, to.data, last.column, std::int64_t{last.k} * depth);
                skip(last, Policy.producers);
              }
            },
            [&](fill_step<Policy.stages> const& at, in_flight_type const& from) {
              fill(group, scratch, from, next, at);
              skip(next, Policy.producers);
            });
  }
  /// Fills the stage of a step with a k-tile, once it is free.
  __device__ __forceinline__ void fill(cuda_warpgroup const& group, scratch_type& scratch,
                                       in_flight_type const& in_flight, k_tile_cursor const& k_tile,
                                       fill_step<Policy.stages> const& at) const {
    shared_barrier& full = at.when_empty(scratch.ring);
    if (group.lane == 0) {
      full.arrive_and_expect(a_bytes);
      load_box(scratch.a[at.stage], a, full, {k_tile.k * depth, k_tile.row});
    }
    sync_warp();
    if constexpr (in_flight_type::is_fetched) {
      b.store(group, in_flight.data, scratch.b[at.stage]);
    } else {
      b.load(group, scratch.b[at.stage], k_tile.column, std::int64_t{k_tile.k} * depth);
    }
    fence_async_proxy();
    sync_warp();
    if (group.lane % lanes_in_a_warp == 0) {
      full.arrive();
    }
  }

  __device__ __forceinline__ void consume(scratch_type& scratch, std::int32_t first_item, int consumer,
                                          int lane) const {
    int const warp = uniform(lane / lanes_in_a_warp);
    typename Epilogue::scratch_type& own = scratch.of_warp[4 * consumer + warp];
    std::int32_t const first_row = consumer * (rows / consumers) + warp * 16;
    state_type state;
    sum_type sums[row_blocks][mma::registers];
    for (std::int32_t index = first_item; index < schedule.count(); index += stride()) {
      gemm_work_item const item = schedule.at(index);
      multiply_tile(scratch, consumer, state, sums);
#pragma unroll
      for (int i = 0; i < row_blocks; ++i) {
        detail::finish_at_once(epilogue, sums[i], {item.column * columns, item.row * rows + first_row + i * mma::rows},
                               own);
      }
    }
    epilogue.finish();
  }

  /// Multiplies the k-tiles of a tile: one is multiplied while the next is awaited, and released when the next one's
  /// multiplications have begun.
  __device__ __forceinline__ void multiply_tile(scratch_type& scratch, int consumer, state_type& state,
                                                sum_type (&sums)[row_blocks][mma::registers]) const {
    auto const a_stages =
        matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(scratch.a[0]) +
                                             static_cast<std::uint32_t>(consumer * (rows / consumers) * depth_bytes));
    auto const b_stages = matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(scratch.b));
#pragma unroll
    for (int i = 0; i < row_blocks; ++i) {
      pin_registers(sums[i]);
    }
    product_reader reads(scratch.ring, state, release_for_warp{});
    for (pipeline_step const at : pipelined(reads, schedule.k_tiles)) {
      begin_multiply();
      matrix_descriptor const a_stage = a_stages.further(at.stage * a_bytes);
      matrix_descriptor const b_stage = b_stages.further(at.stage * b_bytes);
#pragma unroll
      for (int bytes = 0; bytes < depth_bytes; bytes += 32) {
#pragma unroll
        for (int i = 0; i < row_blocks; ++i) {
          mma::multiply(sums[i], a_stage.further(i * mma::rows * depth_bytes + bytes), b_stage.further(bytes),
                        at.index > 0 || bytes != 0);
        }
      }
      commit_multiply();
    }
    reads.finish(sums);
  }
};

}  // namespace v0
}  // namespace tessera
