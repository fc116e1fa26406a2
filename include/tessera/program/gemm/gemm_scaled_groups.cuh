// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_scaled_groups`: the matrix product a b^T by sm_90a's tensor cores of two matrices of 8-bit codes with scales
/// for groups of columns (tile/source/scaled_source.hpp): what gemm_scaled_tiles computes.
///
/// A persistent, warp-specialised kernel with the pipeline of gemm_cooperative, whose k-tiles, 128 bytes deep, are a
/// group of 128 codes or a part of a longer one. Each of two consumer warpgroups has 64 x columns totals in fp32. It
/// multiplies a k-tile by parts of its columns into other registers and adds these sums, times their scales, to the
/// totals. The tensor cores multiply for the other warpgroup meanwhile.
///
/// A thread has the scales of its two rows of a, and those of blocks of b's rows, in registers: it loads them a k-tile
/// ahead. Scales of single rows of b come to shared memory with the codes: by TMA where they are neighbours, otherwise
/// copied by the producer's other warps.
///
/// Cost of 8192^3 with 256 columns and clusters of two: 1.1e12 operations. For the 1024 cycles that tensor cores take
/// for a k-tile of 128 x 256, a scheduler issues 2 x 128 multiply-additions where rows of b share scales, and twice as
/// many, with 2 x 32 loads, where none do; 8-bit integers take a conversion each. By ncu a multiply-addition takes 2.5
/// to 3.4 cycles of its warp beside a multiplication, so that these cannot be hidden altogether.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/program/gemm/detail/scale_blocks.hpp>
#include <tessera/program/gemm/gemm_cooperative.cuh>
#include <tessera/program/gemm/gemm_pipeline.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tile/source/scaled_source.hpp>
#include <tessera/tuning/gemm/scaled_linear.hpp>

namespace tessera {
inline namespace v0 {

/// A, B: ScaledSources of the same 8-bit elements, with scale_address() and groups of a multiple of 128 columns.
/// Epilogue: as gemm_cooperative's.
template <ScaledSource A, ScaledSource B, class Epilogue, scaled_groups_policy Policy>
struct gemm_scaled_groups {
  using operand = typename A::value_type;
  /// The policy of tiles and stages.
  static constexpr warpgroup_gemm_policy policy = Policy.tiles;
  using shape = warpgroup_gemm_shape;
  using stages_type = gemm_stages<operand, policy>;
  static constexpr int lanes = stages_type::lanes;
  static constexpr int blocks_per_cluster = policy.blocks;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  static constexpr int rows = stages_type::rows;                       ///< rows of a cluster's tile
  static constexpr int columns = stages_type::columns;                 ///< columns of a cluster's tile
  static constexpr int b_box_rows = stages_type::b_box_rows;           ///< rows of the boxes of b; boxes of a have 128
  static constexpr int depth = stages_type::depth;                     ///< depth of a k-tile, and of all boxes
  static constexpr int part_columns = Policy.part_columns;             ///< columns that are multiplied at a time
  static constexpr int parts = columns / part_columns;                 ///< parts of a tile's columns
  static constexpr bool has_blocks = detail::shares_scales<B>;         ///< whether threads keep the scales of blocks
  static constexpr int block_columns = detail::columns_of_a_scale<B>;  ///< columns of such a block
  static constexpr int blocks = has_blocks ? columns / block_columns : 0;  ///< blocks of a tile's columns
  static constexpr int a_bytes = stages_type::a_bytes;
  static constexpr int b_bytes = stages_type::b_bytes;
  using mma = warpgroup_mma<operand, part_columns>;
  static_assert(std::is_same_v<operand, typename B::value_type> && depth == 128,
                "tessera: both operands have elements of one type of 8 bits");
  static_assert(A::group % depth == 0 && B::group % depth == 0, "tessera: a k-tile is a part of one group");
  static_assert(columns % part_columns == 0 && columns % block_columns == 0 && (Policy.sets == 1 || Policy.sets == 2),
                "tessera: a tile is whole parts, whose sums have one or two sets of registers");

  /// Scales of a k-tile's columns in shared memory, where the columns share none.
  struct column_scales {
    alignas(16) float of_b[has_blocks ? 1 : columns];  ///< a scale for each column
  };
  struct scratch_type {
    alignas(1024) unsigned char a[policy.stages][a_bytes];
    alignas(1024) unsigned char b[policy.stages][b_bytes];
    typename Epilogue::scratch_type of_warp[4 * shape::consumers];  ///< scratch of the epilogue, for each warp
    column_scales scales[has_blocks ? 1 : policy.stages];           ///< of the stage's k-tile
    /// `full` completes when a stage's k-tile and scales are there, `empty` when all blocks of the cluster used them.
    stage_ring<policy.stages> ring;
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
  bool has_near_scales;  ///< whether TMA can copy the scales of columns: has_neighbours(b)

  /// Whether the scales of a source's rows lie next to each other, in multiples of 16 bytes, for each group.
  static bool has_neighbours(B const& source) {
    if constexpr (detail::rows_of_a_scale<B> != 1) {
      return false;
    } else {
      float const* const first = source.scale_address(0, 0);
      return reinterpret_cast<std::uintptr_t>(first) % 16 == 0 && source.rows() % 4 == 0 &&
             source.scale_address(1, 0) - first == 1 &&
             (source.columns() <= B::group || (source.scale_address(0, 1) - first) % 4 == 0);
    }
  }

  /// Runs the thread block's tiles. A launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    if (group.lane == 0) {
      prepare(scratch);
    }
    stages_type::sync_all(group);
    auto const first_item = static_cast<std::int32_t>(block / policy.blocks);
    int const warpgroup = uniform(group.lane / shape::warpgroup);
    if (warpgroup == 0) {
      lower_registers<policy.producer_registers>();
      if (group.lane == 0) {
        stages_type::produce(scratch, map_of_a, map_of_b, schedule, first_item, scale_loads{*this, scratch});
      } else if (!has_blocks && !has_near_scales && group.lane >= lanes_in_a_warp) {
        copy_scales(scratch, first_item, group.lane - lanes_in_a_warp);
      }
    } else {
      raise_registers<policy.consumer_registers>();
      consume(scratch, first_item, warpgroup - 1, group.lane % shape::warpgroup);
    }
    sync_warp();
    stages_type::sync_all(group);  // no block ends while the other still writes to its shared memory
  }

 private:
  using state_type = typename stages_type::state_type;
  using sum_type = typename mma::sum_type;
  using sums_type = sum_type[Policy.sets][mma::registers];
  static constexpr int copiers = shape::warpgroup - lanes_in_a_warp;  ///< threads that copy scales
  static constexpr int totals_count = parts * mma::registers;         ///< totals of a thread
  static constexpr int ahead = has_blocks ? 0 : Policy.scales_ahead;  ///< pairs of scales that are loaded early

  /// Scales of a thread in registers: products, where they are of blocks, and of its two rows otherwise.
  struct scales_type {
    float of_rows[2];
    float of_blocks[has_blocks ? blocks : 1][2];
  };
  /// Where the scales of a thread lie, and those of the next k-tile on their way to registers.
  struct scale_cursor {
    float const* rows_at[2];                          ///< the first group's, of the thread's rows of a
    float const* blocks_at[has_blocks ? blocks : 1];  ///< the first group's, of blocks of b
    float of_rows[2];
    float of_blocks[has_blocks ? blocks : 1];
  };
  /// The k-tile that a warpgroup multiplies.
  struct k_tile {
    matrix_descriptor a;  ///< codes of the warpgroup's rows
    matrix_descriptor b;  ///< codes of all columns
    float2 const* pairs;  ///< scales of the thread's first pair of columns, if columns have scales; 4 pairs on the next
    scales_type scales;
  };

  /// Copies the scales of columns by TMA, for produce().
  struct scale_loads {
    gemm_scaled_groups const& program;
    scratch_type& scratch;

    [[nodiscard]] __device__ __forceinline__ int bytes(gemm_work_item const& item) const {
      if (has_blocks || !program.has_near_scales) {
        return 0;
      }
      return 4 * static_cast<int>(min(program.b.rows() - std::int64_t{item.column} * columns, std::int64_t{columns}));
    }
    __device__ __forceinline__ void load(int stage, gemm_work_item const& item, std::int32_t first,
                                         shared_barrier& full) const {
      if constexpr (!has_blocks) {
        if (program.has_near_scales) {
          load_bytes(scratch.scales[stage].of_b,
                     program.b.scale_address(std::int64_t{item.column} * columns, first / B::group), bytes(item), full);
        }
      }
    }
  };

  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(map_of_a);
    prefetch_tensor_map(map_of_b);
    epilogue.prepare();
    constexpr int releases = policy.blocks * shape::consumers * 4;  // one of each consumer warp
    scratch.ring.init(has_blocks || has_near_scales ? 1 : 1 + copiers, releases);
    fence_barrier_init();
  }

  /// Copies the scales of columns one by one, for all k-tiles of the block's tiles. Rows that b has not get the scale
  /// of the last one.
  __device__ __forceinline__ void copy_scales(scratch_type& scratch, std::int32_t first_item, int which) const {
    state_type state;
    for (std::int32_t index = first_item; index < schedule.count(); index += stages_type::stride()) {
      gemm_work_item const item = schedule.at(index);
      std::int64_t const column = std::int64_t{item.column} * columns;
      for (auto const at : pipelined(ring_filler(state), item.k_tiles)) {
        shared_barrier& full = at.when_empty(scratch.ring);
        for (int i = which; i < columns; i += copiers) {
          async_copy<4>(&scratch.scales[at.stage].of_b[has_blocks ? 0 : i],
                        b.scale_address(min(column + i, b.rows() - 1), at.index * depth / B::group));
        }
        full.arrive_after_copies();
      }
    }
  }

  __device__ __forceinline__ void consume(scratch_type& scratch, std::int32_t first_item, int consumer,
                                          int lane) const {
    int const warp = uniform(lane / 32);
    std::int32_t const first_row = stages_type::rank() * shape::block_rows + consumer * mma::rows + warp * 16;
    std::int32_t const count = schedule.count();
    std::int32_t const stride = stages_type::stride();
    state_type state;
    scale_cursor next;
    sums_type sums;
    if (first_item < count) {
      aim(next, schedule.at(first_item), first_row + lane % 32 / 4);
    }
    for (std::int32_t index = first_item; index < count; index += stride) {
      gemm_work_item const item = schedule.at(index);
      float totals[totals_count] = {};
      for (pipeline_step const at : pipelined(ring_reader(scratch.ring, state), item.k_tiles)) {
        k_tile tile = at_stage(scratch, at.stage, consumer, lane);
        start<0>(tile, sums);
        take(next, tile.scales);
        if (at.index + 1 < item.k_tiles) {
          fetch(next, at.index + 1);
        } else if (index + stride < count) {
          aim(next, schedule.at(index + stride), first_row + lane % 32 / 4);
        }
        add_parts<0>(scratch, at.stage, tile, sums, totals);
      }
      detail::finish_at_once(epilogue, totals, {item.column * columns, item.row * rows + first_row},
                             scratch.of_warp[4 * consumer + warp]);
    }
    epilogue.finish();
  }

  /// Goes to a work item, and starts to load the scales of its first k-tile. `row` is the thread's first in a tile.
  /// Rows and columns that a and b have not get the scale of the last one.
  __device__ __forceinline__ void aim(scale_cursor& next, gemm_work_item const& item, std::int32_t row) const {
    std::int64_t const first = std::int64_t{item.row} * rows + row;
    std::int64_t const column = std::int64_t{item.column} * columns;
    next.rows_at[0] = a.scale_address(min(first, a.rows() - 1), 0);
    next.rows_at[1] = a.scale_address(min(first + 8, a.rows() - 1), 0);
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      next.blocks_at[i] = b.scale_address(min(column + i * block_columns, b.rows() - 1), 0);
    }
    fetch(next, 0);
  }
  /// Starts to load the scales of a k-tile.
  __device__ __forceinline__ void fetch(scale_cursor& next, std::int32_t k) const {
    std::int64_t const group_of_a = k * depth / A::group * a.params.stride(1);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      next.of_rows[i] = next.rows_at[i][group_of_a];
    }
    std::int64_t const group_of_b = k * depth / B::group * b.params.stride(1);
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      next.of_blocks[i] = next.blocks_at[i][group_of_b];
    }
  }
  __device__ __forceinline__ static void take(scale_cursor const& next, scales_type& scales) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      scales.of_rows[row] = next.of_rows[row];
#pragma unroll
      for (int i = 0; i < blocks; ++i) {
        scales.of_blocks[i][row] = next.of_rows[row] * next.of_blocks[i];
      }
    }
  }

  __device__ __forceinline__ static k_tile at_stage(scratch_type& scratch, int stage, int consumer, int lane) {
    auto const of_rows = static_cast<std::uint32_t>(consumer * mma::rows * shape::depth_bytes);
    k_tile tile;
    tile.a = matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(scratch.a[0]) + of_rows)
                 .further(stage * a_bytes);
    tile.b = matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(scratch.b[0])).further(stage * b_bytes);
    if constexpr (!has_blocks) {
      tile.pairs = reinterpret_cast<float2 const*>(&scratch.scales[stage].of_b[2 * (lane % 4)]);
    }
    return tile;
  }

  /// Starts to multiply a part.
  template <int Part>
  __device__ __forceinline__ static void start(k_tile const& tile, sums_type& sums) {
    sum_type(&own)[mma::registers] = sums[Part % Policy.sets];
    begin_multiply(own);
#pragma unroll
    for (int bytes = 0; bytes < shape::depth_bytes; bytes += 32) {
      mma::multiply(own, tile.a.further(bytes), tile.b.further(Part * part_columns * shape::depth_bytes + bytes),
                    bytes != 0);
    }
    commit_multiply();
  }

  /// Adds the scaled sums of this part, which has been started, and of the further ones to the totals. Releases the
  /// k-tile when it is read.
  template <int Part>
  __device__ __forceinline__ static void add_parts(scratch_type& scratch, int stage, k_tile const& tile,
                                                   sums_type& sums, float (&totals)[totals_count]) {
    constexpr bool is_last = Part + 1 == parts;
    constexpr bool overlaps = Policy.sets == 2 && !is_last;
    if constexpr (overlaps) {
      start<Part + 1>(tile, sums);
    }
    float2 early[ahead + 1];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      early[i] = tile.pairs[Part * part_columns / 2 + 4 * i];
    }
    await_multiply<overlaps ? 1 : 0>(sums[Part % Policy.sets]);
    if constexpr (is_last && has_blocks) {
      typename stages_type::release_type{}(scratch.ring.empty[stage]);
    }
    float& first_total = totals[Part * mma::registers];
    auto& own = reinterpret_cast<float(&)[mma::registers]>(first_total);
    if constexpr (has_blocks) {
      add_blocks<Part>(tile.scales, sums[Part % Policy.sets], own);
    } else {
      float const last =
          add_columns(tile.scales, tile.pairs + Part * part_columns / 2, early, sums[Part % Policy.sets], own);
      if constexpr (is_last) {
        release(scratch, stage, last);
      }
    }
    if constexpr (!is_last) {
      if constexpr (!overlaps) {
        start<Part + 1>(tile, sums);
      }
      add_parts<Part + 1>(scratch, stage, tile, sums, totals);
    }
  }

  /// Adds a part's sums, times the scales of blocks, to its totals.
  template <int Part>
  __device__ __forceinline__ static void add_blocks(scales_type const& scales, sum_type const (&sums)[mma::registers],
                                                    float (&totals)[mma::registers]) {
#pragma unroll
    for (int i = 0; i < mma::registers; ++i) {
      int const block = (Part * part_columns + i / 4 * 8) / block_columns;  // 4 registers are of 8 columns
      totals[i] += scales.of_blocks[block][i / 2 % 2] * static_cast<float>(sums[i]);
    }
  }
  /// Adds a part's sums, times the scales of rows and columns, to its totals. Returns the last scale that was read.
  __device__ __forceinline__ static float add_columns(scales_type const& scales, float2 const* pairs,
                                                      float2 const (&early)[ahead + 1],
                                                      sum_type const (&sums)[mma::registers],
                                                      float (&totals)[mma::registers]) {
    float2 of_pair;
#pragma unroll
    for (int i = 0; i < mma::registers; i += 4) {
      of_pair = i / 4 < ahead ? early[min(i / 4, ahead)] : pairs[i];  // 4 registers are of 8 columns
      totals[i] += scales.of_rows[0] * of_pair.x * static_cast<float>(sums[i]);
      totals[i + 1] += scales.of_rows[0] * of_pair.y * static_cast<float>(sums[i + 1]);
      totals[i + 2] += scales.of_rows[1] * of_pair.x * static_cast<float>(sums[i + 2]);
      totals[i + 3] += scales.of_rows[1] * of_pair.y * static_cast<float>(sums[i + 3]);
    }
    return of_pair.y;
  }

  /// Releases a stage for the calling warp, to the producers of all blocks of the cluster, once its scales are read.
  /// In clusters of two, which the tuning has, racecheck reports the scales, perhaps because it does not see the other
  /// block's arrivals, without which no phase ends.
  __device__ __forceinline__ static void release(scratch_type& scratch, int stage, float read) {
    sync_warp();
    unsigned const lane = thread_index() % 32;
    if constexpr (policy.blocks == 1) {
      if (lane == 0) {
        scratch.ring.empty[stage].arrive_after(read);
      }
    } else if (lane < policy.blocks) {
      scratch.ring.empty[stage].arrive_at_after(lane, read);
    }
  }
};

}  // namespace v0
}  // namespace tessera
