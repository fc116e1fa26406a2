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
/// b is a matrix in memory, or comes from any TileSource: `gemm_ring<operand_from_source<Operand, Source>, ...>`. Then
/// the lanes make its stages while they multiply: a FetchedSource's next stage is on its way to registers, and they
/// store it halfway through another one, where a's copies begin; of any other source load() is called there. A stage is
/// made again for each tile of its columns, so that tiles are tall. Of 256 x 128 sums and 64 codes of depth it has 8192
/// of these, which take 4 to 5 instructions each: of each of the four schedulers 256 to 320 issue slots, beside 256
/// products and 130 other instructions, in the 1562 cycles in which tensor cores multiply.
///
/// An operand of 2 bytes in memory may lie across the depth, as depth x rows (ordered_operands): ldmatrix turns it, and
/// products are added up in the same order. Of a across the depth a warp has 64 rows.
///
/// Both may be 8-bit codes with scales for groups of a multiple of 128 columns: `gemm_ring<operands_with_scales<A, B>,
/// ...>` (detail/ring_scales.cuh). A stage is then a part of one group. A warp has 48 x 64 sums and as many totals, or
/// 32 x 64 where it widens 8-bit floats. For each product, of 16 x 8 x 32, it adds one register of sums to totals: a
/// multiply-addition, of integers also a subtraction, and a multiplication where columns have scales of their own. A
/// product takes 8 cycles of its tensor core on sm_80, and about 6.5 by sm_80's code on sm_90: the one to three
/// instructions take a sixth to a half of the issue slots.
///
/// Cost of a step of 128 x 128 sums and 128 bytes of depth in 16 bits: 2.1e6 operations, 32 KiB from L2, 64 KiB from
/// shared memory; a warp has 128 products of 16 x 8 x 16. Of 192 x 256 sums: 6.3e6, 56 and 160 KiB, and 192. Sums are
/// added up from the first to the last column of the depth.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/program/gemm/detail/ring_scales.cuh>
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
#include <tessera/tile/source/fetched_source.hpp>
#include <tessera/tile/source/scaled_source.hpp>
#include <tessera/tile/swizzled_tile.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

/// Names gemm_ring's operands where b comes from a source. Operand: how elements are multiplied.
template <class Operand, TileSource Source>
struct operand_from_source {
  static_assert(std::is_same_v<typename Source::value_type, typename gemm_operand<Operand>::value_type>,
                "tessera: the source has elements of the operand");
};

/// Names gemm_ring's operands where both are 8-bit codes in memory with scales for groups of columns.
template <ScaledSource A, ScaledSource B>
struct operands_with_scales {
  static_assert(sizeof(typename A::value_type) == 1 && std::is_same_v<typename A::value_type, typename B::value_type>,
                "tessera: both operands have elements of one type of 8 bits");
};

namespace detail {

/// What gemm_ring's operands are: both in memory.
template <class Operands>
struct ring_operands {
  using orders = orders_of<Operands>;
  using a_type = dense_chunks<typename gemm_operand<typename orders::operand>::value_type>;
  using b_type = a_type;
  template <class>
  using scales_type = no_ring_scales;
  static constexpr bool has_source = false;
};
template <class Operand, class Source>
struct ring_operands<operand_from_source<Operand, Source>> : ring_operands<Operand> {
  using b_type = Source;
  static constexpr bool has_source = true;
};
template <class A, class B>
struct ring_operands<operands_with_scales<A, B>> {
  using orders = orders_of<typename A::value_type>;
  using a_type = codes_with_scales<A>;
  using b_type = codes_with_scales<B>;
  template <class M>
  using scales_type = ring_scales<A, B, M>;
  static constexpr bool has_source = false;
};

/// The grid in which warps divide a tile so that each has 64 of its columns.
template <int Warps, int Columns>
struct grid_of_64_columns {
  static constexpr int columns = Columns / 64;
  static constexpr int rows = Warps / columns;
};

/// How a lane copies Rows rows of an operand in memory.
template <operand_order Order, class T, int Rows, int Lanes>
using stage_copies =
    std::conditional_t<Order == operand_order::along_depth, stage_rows<T, Rows, Lanes>, stage_columns<T, Rows, Lanes>>;

/// Rows of a source from which stages are made, in place of stage_rows.
struct rows_of_source {
  std::int32_t first;  ///< the first one

  __device__ __forceinline__ static rows_of_source none() { return {0}; }
};

}  // namespace detail

/// Operands: how elements are multiplied, ordered_operands, operand_from_source, or operands_with_scales.
template <class Operands, class Schedule, class Epilogue, gemm_ring_policy Policy>
struct gemm_ring {
  using orders = typename detail::ring_operands<Operands>::orders;  ///< how operands in memory lie
  using operand_name = typename orders::operand;                    ///< how elements are multiplied
  using operand_type = typename gemm_operand<operand_name>::value_type;
  /// The first factor: rows x depth, or depth x rows.
  using a_type = typename detail::ring_operands<Operands>::a_type;
  /// The second factor, transposed: columns x depth.
  using b_type = typename detail::ring_operands<Operands>::b_type;
  /// Whether lanes make stages of b.
  static constexpr bool has_source = detail::ring_operands<Operands>::has_source;
  static constexpr int lanes = Policy.lanes;
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr bool is_persistent = true;
  static constexpr int rows = Policy.rows;                                    ///< rows of a tile
  static constexpr int columns = Policy.columns;                              ///< columns of a tile
  static constexpr int depth = 128 / static_cast<int>(sizeof(operand_type));  ///< depth of a stage
  static_assert(Policy.bytes == 128, "tessera: stages of this program have 128 bytes of the depth");
  /// The group that runs it.
  using group_type = cuda_block<lanes>;
  static constexpr int warps = lanes / 32;
  using tile_shape = shape<rows, columns, depth / 4>;  ///< a tile, and the depth of a product
  /// How a tile lies in registers.
  using registers =
      detail::gemm_fragments<operand_name, tile_shape, group_type, detail::grid_of_64_columns<warps, columns>>;
  using mma = detail::tile_in_registers<operand_name, tile_shape, group_type, registers>;
  static constexpr int row_warps = registers::grid::columns;  ///< warps that share a row of a tile
  /// Whether the epilogue keeps states of rows from tile to tile.
  static constexpr bool keeps_rows = requires(Epilogue const& epilogue) { epilogue.ends(0); };
  static_assert(registers::column_tiles == 8, "tessera: a warp of this program has 64 columns");

  using ring_type = swizzled_ring<mma, Policy.stages>;                           ///< stages of both operands
  using rows_of_a = detail::stage_copies<orders::a, operand_type, rows, lanes>;  ///< how a lane copies rows of a
  /// What is done about scales.
  using scales_type = typename detail::ring_operands<Operands>::template scales_type<mma>;
  static constexpr bool has_scales = scales_type::takes;  ///< whether totals are the result, not sums
  /// Scaled 8-bit floats that are widened, before sm_89, leave registers for 32 rows of a warp.
  static constexpr bool has_scaled_floats = has_scales && !std::is_integral_v<operand_type>;
  static constexpr int from_architecture = has_scaled_floats && registers::row_tiles > 2 ? 890 : 800;
  static constexpr int before_architecture = has_scaled_floats && registers::row_tiles <= 2 ? 890 : 10000;
  using b_tile = swizzled_tile<operand_type, columns>;  ///< a stage of b
  /// How a lane copies rows of b, or which rows of a source a stage has.
  using rows_of_b = std::conditional_t<has_source, detail::rows_of_source,
                                       detail::stage_copies<orders::b, operand_type, columns, lanes>>;

  struct scratch_type {
    ring_type ring;  ///< stages of both operands
    [[no_unique_address]] typename scales_type::template stages_type<Policy.stages> scales;  ///< those of stages
    typename Epilogue::scratch_type of_rows[warps][keeps_rows ? registers::row_tiles : 1];   ///< of the epilogue
    stage_ring<Policy.stages> barriers;                                                      ///< of the ring
  };

  a_type a;  ///< rows x depth, or depth x rows where it lies across
  b_type b;  ///< columns x depth: the second factor, transposed; or depth x columns
  Schedule schedule;
  Epilogue epilogue;

  /// Runs a thread block's work items. A launch has as many thread blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(group_type const& group, std::int64_t block, scratch_type& scratch) const {
    auto const workers = static_cast<std::int32_t>(blocks_in_grid());
    using passage_type = ring_passage<mma, Policy.stages>;
    passage_type::template init<has_source>(scratch.barriers, group);
    passage_type passage{scratch.ring, scratch.barriers, {}};
    filler fill{*this,
                group,
                workers,
                scratch.ring,
                shared_address(&scratch.ring) + rows_of_a::offset(group.lane),
                open(group, static_cast<std::int32_t>(block), workers),
                scales_at(scratch, group)};
    fill.fetch();
    passage.begin(fill);
    typename mma::sum_tile sums;
    for (auto index = static_cast<std::int32_t>(block); index < schedule.count(); index += workers) {
      gemm_work_item const item = schedule.at(index);
      if constexpr (has_scales) {
        fill.scales.clear(sums);
      } else {
        mma::clear(group, sums);
      }
      if (item.k_tiles > 0) {
        multiply_swizzled<orders::a, orders::b>(group, passage, item.k_tiles, fill, sums);
      }
      if constexpr (has_scales) {
        end_tile(group, scratch, item, fill.scales.totals, index);
      } else {
        end_tile(group, scratch, item, sums, index);
      }
    }
    async_copy_wait_all();
  }

 private:
  using in_flight_type = source_in_flight<b_type, group_type, b_tile>;
  static constexpr bool is_fetched = has_source && in_flight_type::is_fetched;  ///< whether stages of b are
  struct nothing {};

  /// The next stage that is to be filled.
  struct cursor {
    rows_of_a of_a;
    rows_of_b of_b;
    [[no_unique_address]] typename scales_type::cursor of_scales;
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
      return {rows_of_a::none(), rows_of_b::none(), {}, index, 0, 0, 0};
    }
    return {rows_of_a::of(a.matrix, std::int64_t{item.row} * rows, group.lane),
            open_b(group, item.column),
            open_scales(group, item),
            index,
            item.first,
            item.k_tiles,
            0};
  }
  /// The rows of b of tiles in this column.
  __device__ __forceinline__ rows_of_b open_b(group_type const& group, std::int32_t column) const {
    if constexpr (has_source) {
      return {column * columns};
    } else {
      return rows_of_b::of(b.matrix, std::int64_t{column} * columns, group.lane);
    }
  }
  /// The scales of a work item.
  __device__ __forceinline__ typename scales_type::cursor open_scales(group_type const& group,
                                                                      gemm_work_item const& item) const {
    if constexpr (has_scales) {
      return scales_type::aim(item.row * rows, item.column * columns, group.lane);
    } else {
      return {};
    }
  }
  /// The lane's scales in stages.
  __device__ __forceinline__ static scales_type scales_at(scratch_type& scratch, group_type const& group) {
    if constexpr (has_scales) {
      return scales_type::of(scratch.scales, group);
    } else {
      return {};
    }
  }

  /// What fills the ring: the lane's copies of one stage after the other, of all work items.
  struct filler {
    gemm_ring const& program;
    group_type const& group;
    std::int32_t workers;
    ring_type& ring;
    std::uint32_t to;  ///< the address of the lane's first chunk in the ring
    cursor at;
    /// What takes the sums of stages.
    scales_type scales;
    /// The next stage of b.
    std::conditional_t<is_fetched, in_flight_type, nothing> in_flight;
    static constexpr std::uint32_t to_b = sizeof(ring_type::a);  ///< bytes from stages of a to those of b
    static constexpr bool stores = has_source;                   ///< whether lanes write stages
    static constexpr bool takes = has_scales;                    ///< whether it takes the sums of stages

    [[nodiscard]] __device__ __forceinline__ bool has_stage() const { return at.k_tiles > 0; }
    /// The column of the operands at which the next stage begins.
    [[nodiscard]] __device__ __forceinline__ std::int32_t column() const {
      return has_stage() ? program.schedule.k_tile(at.first + at.k) * depth : 0;  // lists may be empty
    }
    __device__ __forceinline__ void begin(int stage) const {
      std::int32_t const from = column();
      auto const number = static_cast<std::uint32_t>(stage);
      at.of_a.begin(program.a.matrix, from, to + number * ring_type::a_bytes, group.lane);
      if constexpr (!has_source) {
        at.of_b.begin(program.b.matrix, from, to + to_b + number * ring_type::b_bytes, group.lane);
      } else if (has_stage()) {
        auto& tile = stage_along<operand_type, columns>(ring.b[stage]);
        if constexpr (is_fetched) {
          program.b.store(group, in_flight.data, tile);
        } else {
          program.b.load(group, tile, at.of_b.first, from);
        }
      }
      if constexpr (has_scales) {
        if (has_stage()) {
          scales.begin(program.a.source, program.b.source, at.of_scales, from, stage);
        }
      }
    }
    /// Takes the sums of a stage and of a warp's 16 rows number Tile. Returns the last word of the stage that it reads.
    template <int Tile>
    __device__ __forceinline__ std::uint32_t take(int stage, typename mma::sum_tile& sums) requires(has_scales) {
      return scales.template take<Tile>(stage, sums);
    }
    __device__ __forceinline__ void advance() {
      if (++at.k == at.k_tiles) {
        at = program.open(group, at.index, workers);
      }
      fetch();
    }
    /// Has the next stage of a source on its way.
    __device__ __forceinline__ void fetch() {
      if constexpr (is_fetched) {
        if (has_stage()) {
          program.b.fetch(group, in_flight.data, at.of_b.first, column());
        }
      }
    }
  };

  /// Gives a tile's sums to the epilogue, 16 rows at a time.
  template <class Sums>
  __device__ __forceinline__ void end_tile(group_type const& group, scratch_type& scratch, gemm_work_item const& item,
                                           Sums& sums, std::int32_t index) const {
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
