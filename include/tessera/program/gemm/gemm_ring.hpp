// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_ring`: the matrix product a b^T of two AsyncSources, for GPUs without sm_90a's tensor cores: large tiles, and
/// a ring of stages that are filled while others are multiplied.
///
/// A group of 128 lanes computes 128 x 128 sums, a warp 64 x 64 of them. A stage has 64 bytes of depth of 128 rows of a
/// and of b; two stages are on their way while one is multiplied. Sums are added up from the first to the last column
/// of the depth, as gemm_tiles adds them. Two groups share a multiprocessor, so that one multiplies while the other
/// waits.
///
/// Cost of a step of 128 x 128 x 32 in 16 bits: 1.05e6 operations, 16 KiB from L2 and 32 from scratch; a warp has 64
/// products of 16 x 8 x 16 for 16 loads of fragments, 94 instructions in all.
///
/// sm_80's code on an H100, bf16, TFLOP/s for 4096^3 and 8192^3: 267 and 288, where gemm_tiles has 70 and 72. With four
/// stages 264 and 285; with 128 bytes of depth in a stage, which takes 108 KiB for a group, 287 and 305; with 128 x 256
/// sums of 256 lanes, one group to a multiprocessor, 247 and 252. By ncu L2 is busy for 0.86 of the time, tensor cores
/// for 0.49.
///
/// A, B: sources of gemm_operand<Operand>::value_type with begin_load() (tile/source/async_source.hpp), both with the
/// depth as columns. The epilogue is called once for each sum inside of the result: see program/gemm/store_sums.hpp.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/program/gemm/sum_epilogue.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/pipelined.hpp>
#include <tessera/tile/source/async_source.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/tile_order.hpp>

namespace tessera {
inline namespace v0 {

template <class Operand, TileSource A, TileSource B, SumEpilogue Epilogue>
struct gemm_ring {
  using operand_type = typename gemm_operand<Operand>::value_type;
  static constexpr int lanes = 128;
  static constexpr int from_architecture = 800;
  static constexpr int blocks_per_multiprocessor = 2;
  static constexpr int rows = 128;                                          ///< rows of a tile
  static constexpr int columns = 128;                                       ///< columns of a tile
  static constexpr int step = 32 / static_cast<int>(sizeof(operand_type));  ///< depth of one multiplication
  static constexpr int depth = 2 * step;                                    ///< depth of a stage
  static constexpr int stages = 3;                                          ///< stages of the ring

  struct scratch_type {
    staged_tile<operand_type, rows, depth> a[stages];     ///< rows of a
    staged_tile<operand_type, columns, depth> b[stages];  ///< rows of b, which are columns of the result
  };

  A a;  ///< rows x depth
  B b;  ///< columns x depth: the second factor, transposed
  Epilogue epilogue;

  /// The order in which tiles are taken.
  TESSERA_FN constexpr tile_order order() const {
    return {static_cast<std::int32_t>(divide_up(a.rows(), std::int64_t{rows})),
            static_cast<std::int32_t>(divide_up(b.rows(), std::int64_t{columns})), 8};
  }
  /// How many tiles there are. Each takes a group.
  TESSERA_FN constexpr std::int64_t tiles() const { return order().count(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    using mma = gemm_tile<Operand, shape<rows, columns, step>, G>;
    static_assert(AsyncSource<A, G, staged_tile<operand_type, rows, depth>> &&
                  AsyncSource<B, G, staged_tile<operand_type, columns, depth>>);
    tile_coordinate const tile = order().at(which);
    std::int64_t const first_row = std::int64_t{tile.row} * rows;
    std::int64_t const first_column = std::int64_t{tile.column} * columns;
    auto const begin = [&](int number, int stage) {
      a.begin_load(group, scratch.a[stage], first_row, std::int64_t{number} * depth);
      b.begin_load(group, scratch.b[stage], first_column, std::int64_t{number} * depth);
    };
    typename mma::sum_tile sums;
    mma::clear(group, sums);
    auto const steps = static_cast<int>(divide_up(a.columns(), std::int64_t{depth}));
    for (pipeline_step const at : pipelined<stages>(group, steps, begin)) {
      multiply_staged<mma>(group, scratch.a[at.stage], scratch.b[at.stage], sums);
    }
    std::int64_t const row_count = a.rows();
    std::int64_t const column_count = b.rows();
    mma::each(group, sums, [&](int row, int column, typename mma::sum_type sum) {
      if (first_row + row < row_count && first_column + column < column_count) {
        epilogue(first_row + row, first_column + column, sum);
      }
    });
  }
};

}  // namespace v0
}  // namespace tessera
