// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The fifth level: sm_90a's TMA loads tiles into a pipeline in shared memory, from which warpgroups multiply them.
#pragma once

#include <cstdint>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>

#include "portable_levels.hpp"

namespace tessera_examples {

struct warpgroup_level {
  static constexpr char const* name = "5 wgmma, warp-specialised";
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;  // only sm_90a has wgmma
  // Called once a block, as register budgets need; groups() is the number of blocks.
  static constexpr bool is_persistent = true;

  static constexpr int rows = 128;
  static constexpr int columns = 256;
  static constexpr int depth = 64;  ///< depth of a stage: rows of 128 bytes, which TMA swizzles
  static constexpr int stages = 4;  ///< pipeline stages of 48 KiB
  static constexpr int consumers = 2;
  static constexpr int lanes = 128 * (1 + consumers);
  using mma = warpgroup_mma<bfloat16, columns>;
  using tiles = tiles_of_product<rows, columns>;

  struct scratch_type {
    alignas(1024) unsigned char a[stages][rows * 128];
    alignas(1024) unsigned char b[stages][columns * 128];
    shared_barrier full[stages];   ///< the stage's tiles are there
    shared_barrier empty[stages];  ///< all warps of the consumers have multiplied the stage's tiles
  };

  tiles all;
  tensor_map a;
  tensor_map b;

  /// The level for a product with aligned rows.
  static warpgroup_level of(product const& problem) {
    return {{problem},
            make_tensor_map("warpgroup_level", problem.a, {rows, depth}),
            make_tensor_map("warpgroup_level", problem.b, {columns, depth})};
  }
  [[nodiscard]] std::int64_t groups() const { return all.order().count(); }

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t which, scratch_type& scratch) const {
    if (group.lane == 0) {
      for (int stage = 0; stage < stages; ++stage) {
        scratch.full[stage].init(1);
        scratch.empty[stage].init(4 * consumers);
      }
      fence_barrier_init();
    }
    group.sync();
    tiles::corner const first = all.at(which);
    auto const k_tiles = static_cast<int>(divide_up(all.of.a.extent(1), std::int64_t{depth}));
    int const warpgroup = __shfl_sync(0xffffffffU, group.lane / 128, 0);
    if (warpgroup == 0) {
      lower_registers<40>();
      if (group.lane == 0) {
        produce(scratch, first, k_tiles);
      }
    } else {
      raise_registers<232>();
      consume(scratch, first, k_tiles, warpgroup - 1, group.lane % 128);
    }
  }

 private:
  /// The producer: one thread has TMA fill whichever stage is empty.
  __device__ void produce(scratch_type& scratch, tiles::corner first, int k_tiles) const {
    auto const row = static_cast<std::int32_t>(first.row);
    auto const column = static_cast<std::int32_t>(first.column);
    pipeline_state<stages> state;
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile, state.advance()) {
      scratch.empty[state.stage].wait(state.phase ^ 1);
      scratch.full[state.stage].arrive_and_expect((rows + columns) * 128);
      load_box(scratch.a[state.stage], a, scratch.full[state.stage], {k_tile * depth, row});
      load_box(scratch.b[state.stage], b, scratch.full[state.stage], {k_tile * depth, column});
    }
  }

  /// A consumer: a warpgroup multiplies 64 of the rows. While it multiplies a stage it releases the one before.
  __device__ void consume(scratch_type& scratch, tiles::corner first, int k_tiles, int consumer, int lane) const {
    typename mma::sum_type sums[mma::registers];
    for (float& sum : sums) {
      sum = 0;
    }
    pipeline_state<stages> state;
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
      scratch.full[state.stage].wait(state.phase);
      begin_multiply(sums);
      multiply_stage(scratch, state.stage, consumer, sums);
      commit_multiply();
      if (k_tile > 0) {
        await_multiply<1>();
        give_back(scratch, (state.stage + stages - 1) % stages, lane);
      }
      state.advance();
    }
    await_multiply<0>(sums);
    write(sums, {first.row + consumer * mma::rows, first.column}, lane);
  }

  __device__ static void multiply_stage(scratch_type& scratch, int stage, int consumer, float (&sums)[mma::registers]) {
    auto const shared = [](void const* at) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(at)); };
    auto const a = matrix_descriptor::rows_of_128_bytes(shared(scratch.a[stage]) +
                                                        static_cast<std::uint32_t>(consumer * mma::rows * 128));
    auto const b = matrix_descriptor::rows_of_128_bytes(shared(scratch.b[stage]));
#pragma unroll
    for (int bytes = 0; bytes < 128; bytes += 32) {
      mma::multiply(sums, a.further(bytes), b.further(bytes), true);
    }
  }

  __device__ static void give_back(scratch_type& scratch, int stage, int lane) {
    if (lane % 32 == 0) {
      scratch.empty[stage].arrive();
    }
  }

  /// Writes the sums; warpgroup_mma.cuh says where each of them lies in the registers of a warpgroup.
  __device__ void write(float const (&sums)[mma::registers], tiles::corner first, int lane) const {
    matrix_view<bfloat16> const c = all.of.c;
    std::int64_t const row = first.row + 16 * (lane / 32) + lane % 32 / 4;
    std::int64_t const column = first.column + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < mma::registers; ++i) {
      std::int64_t const at_row = row + 8 * (i / 2 % 2);
      std::int64_t const at_column = column + 8 * (i / 4) + i % 2;
      if (at_row < c.extent(0) && at_column < c.extent(1)) {
        c(at_row, at_column) = store<bfloat16>(sums[i]);
      }
    }
  }
};

}  // namespace tessera_examples
