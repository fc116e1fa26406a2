// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The fifth level: sm_90a's TMA fills a ring of stages in shared memory, from which warpgroups multiply them.
#pragma once

#include <cstdint>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/cuda_warpgroup.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/swizzled_tile.hpp>

#include "portable_levels.hpp"

namespace tessera_examples {

/// The sums of 64 rows, which lie in the registers of a warpgroup as warpgroup_mma.cuh says.
template <int Columns>
struct warpgroup_sums {
  using mma = warpgroup_mma<bfloat16, Columns>;
  struct sum_tile {
    typename mma::sum_type values[mma::registers];
  };
  __device__ static void clear(cuda_warpgroup const&, sum_tile& sums) {
    for (float& sum : sums.values) {
      sum = 0;
    }
  }
  /// Waits for what was begun to be multiplied, and visits a lane's sums.
  template <class Visit>
  __device__ static void each(cuda_warpgroup const& group, sum_tile& sums, Visit const& visit) {
    await_multiply<0>(sums.values);
    int const row = 16 * (group.lane / 32) + group.lane % 32 / 4;
    int const column = 2 * (group.lane % 4);
#pragma unroll
    for (int i = 0; i < mma::registers; ++i) {
      visit(row + 8 * (i / 2 % 2), column + 8 * (i / 4) + i % 2, sums.values[i]);
    }
  }
  /// Begins to add the product of 64 rows of a stage, and of all rows of another.
  __device__ static void begin(sum_tile& sums, void const* a_rows, void const* b_rows) {
    auto const operand = [](void const* rows) {
      return matrix_descriptor::rows_of_128_bytes(static_cast<std::uint32_t>(__cvta_generic_to_shared(rows)));
    };
    matrix_descriptor const a = operand(a_rows);
    matrix_descriptor const b = operand(b_rows);
    begin_multiply(sums.values);
#pragma unroll
    for (int bytes = 0; bytes < 128; bytes += 32) {
      mma::multiply(sums.values, a.further(bytes), b.further(bytes), true);
    }
    commit_multiply();
  }
};

/// Level 5: warps have roles. One thread fills stages, and each of two warpgroups runs the body with 64 rows.
struct warpgroup_level : product_body<128, 256> {
  static constexpr char const* name = "5 wgmma, warp-specialised";
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;  // only sm_90a has wgmma
  // Called once a block, as register budgets need; groups() is the number of blocks.
  static constexpr bool is_persistent = true;

  static constexpr int depth = 64;  ///< depth of a stage: rows of 128 bytes, which TMA swizzles
  static constexpr int stages = 4;  ///< pipeline stages of 48 KiB
  static constexpr int consumers = 2;
  static constexpr int lanes = 128 * (1 + consumers);
  using tile = warpgroup_sums<tile_columns>;

  struct scratch_type {
    swizzled_tile<bfloat16, tile_rows> a[stages];
    swizzled_tile<bfloat16, tile_columns> b[stages];
    stage_ring<stages> ring;  ///< a stage is empty when all warps of the consumers have multiplied it
  };

  tensor_map a;
  tensor_map b;

  /// The level for a product with aligned rows.
  static warpgroup_level of_product(product const& problem) {
    return {{problem},
            make_tensor_map("warpgroup_level", problem.a, {tile_rows, depth}),
            make_tensor_map("warpgroup_level", problem.b, {tile_columns, depth})};
  }

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t which, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.ring.init(1, 4 * consumers);
      fence_barrier_init();
    }
    group.sync();
    corner const first = at(which);
    int const warpgroup = __shfl_sync(0xffffffffU, group.lane / 128, 0);
    if (warpgroup == 0) {
      lower_registers<40>();
      if (group.lane == 0) {
        produce(scratch, first);
      }
    } else {
      raise_registers<232>();
      consume(scratch, first, warpgroup);
    }
  }

 private:
  /// The producer: one thread has TMA fill whichever stage is empty.
  __device__ void produce(scratch_type& scratch, corner first) const {
    pipeline_state<stages> state;
    for (auto const at : pipelined(ring_filler(state), steps(depth))) {
      shared_barrier& full = at.when_empty(scratch.ring);
      full.arrive_and_expect((tile_rows + tile_columns) * 128);
      load_box(scratch.a[at.stage].values, a, full, {at.index * depth, static_cast<std::int32_t>(first.row)});
      load_box(scratch.b[at.stage].values, b, full, {at.index * depth, static_cast<std::int32_t>(first.column)});
    }
  }

  /// A consumer: a step is there when its stage is full. While it is multiplied the stage before is given back. The
  /// last need not be: nothing fills it again.
  __device__ void consume(scratch_type& scratch, corner first, int warpgroup) const {
    int const rows_before = (warpgroup - 1) * tile::mma::rows;
    pipeline_state<stages> state;
    product_reader reads(scratch.ring, state, release_for_warp{});
    auto const multiply = [&](pipeline_step step, tile::sum_tile& sums) {
      tile::begin(sums, &scratch.a[step.stage](rows_before, 0), &scratch.b[step.stage](0, 0));
    };
    compute<tile>(cuda_warpgroup(warpgroup, warpgroup), {first.row + rows_before, first.column},
                  pipelined(reads, steps(depth)), multiply);
  }
};

}  // namespace tessera_examples
