// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_ring`: the matrix product a b^T of two AsyncSources, for GPUs without sm_90a's tensor cores: large tiles, and
/// a ring of stages that are filled while others are multiplied (detail/multiply_ring.hpp).
///
/// A group computes a tile of sums; a warp has 64 x 64 of them. Sums are added up from the first to the last column of
/// the depth, as gemm_tiles adds them. How large tiles and stages are is a policy's matter (tuning/gemm/linear.hpp).
///
/// Cost of a step of 128 x 256 sums and 128 bytes of depth in 16 bits: 4.2e6 operations, 48 KiB from L2 and 128 KiB
/// from scratch; a warp has 128 products of 16 x 8 x 16 for 32 loads of fragments, 269 instructions in all.
///
/// Sources: a product_sources, both with the depth as columns. The epilogue is called once for each sum inside of the
/// result: see program/gemm/store_sums.hpp.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/program/gemm/detail/multiply_ring.hpp>
#include <tessera/program/gemm/sum_epilogue.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/source/async_source.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/tile_order.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

/// The factors of a product. A, B: sources of gemm_operand<Operand>::value_type with begin_load()
/// (tile/source/async_source.hpp).
template <TileSource A, TileSource B>
struct product_sources {
  A a;  ///< rows x depth
  B b;  ///< columns x depth: the second factor, transposed
};

template <class Operand, class Sources, SumEpilogue Epilogue, gemm_ring_policy Policy>
struct gemm_ring {
  using operand_type = typename gemm_operand<Operand>::value_type;
  static constexpr int lanes = Policy.lanes;
  static constexpr int from_architecture = 800;
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr int rows = Policy.rows;                                  ///< rows of a tile
  static constexpr int columns = Policy.columns;                            ///< columns of a tile
  static constexpr int step = 32 / static_cast<int>(sizeof(operand_type));  ///< depth of one multiplication
  static constexpr int depth = Policy.bytes / 32 * step;                    ///< depth of a stage
  /// Rows of a in scratch.
  using a_tile = staged_tile<operand_type, rows, depth>;
  /// Rows of b in scratch.
  using b_tile = staged_tile<operand_type, columns, depth>;

  struct scratch_type {
    detail::operand_ring<a_tile, b_tile, Policy.stages> ring;  ///< rows of a and of b
  };

  Sources sources;  ///< the factors
  Epilogue epilogue;

  /// The order in which tiles are taken.
  TESSERA_FN constexpr tile_order order() const {
    return {static_cast<std::int32_t>(divide_up(sources.a.rows(), std::int64_t{rows})),
            static_cast<std::int32_t>(divide_up(sources.b.rows(), std::int64_t{columns})), 8};
  }
  /// How many tiles there are. Each takes a group.
  TESSERA_FN constexpr std::int64_t tiles() const { return order().count(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    if constexpr (are_dense) {
      using chunks = dense_chunks<operand_type>;
      if (chunks::suits(sources.a.matrix) && chunks::suits(sources.b.matrix)) {
        return multiply(group, which, scratch, chunks{sources.a.matrix}, chunks{sources.b.matrix});
      }
    }
    multiply(group, which, scratch, sources.a, sources.b);
  }

 private:
  /// Whether both factors are matrices, which are asked once whether they have whole chunks.
  static constexpr bool are_dense = std::is_same_v<Sources, product_sources<dense<operand_type>, dense<operand_type>>>;

  template <Group G, class A, class B>
  TESSERA_FN void multiply(G const& group, std::int64_t which, scratch_type& scratch, A const& a, B const& b) const {
    using mma = gemm_tile<Operand, shape<rows, columns, step>, G>;
    static_assert(AsyncSource<A, G, a_tile> && AsyncSource<B, G, b_tile>);
    tile_coordinate const tile = order().at(which);
    std::int64_t const first_row = std::int64_t{tile.row} * rows;
    std::int64_t const first_column = std::int64_t{tile.column} * columns;
    auto const begin = [&](int number, int stage) {
      a.begin_load(group, scratch.ring.a[stage], first_row, std::int64_t{number} * depth);
      b.begin_load(group, scratch.ring.b[stage], first_column, std::int64_t{number} * depth);
    };
    typename mma::sum_tile sums;
    mma::clear(group, sums);
    auto const steps = static_cast<int>(divide_up(a.columns(), std::int64_t{depth}));
    detail::multiply_ring<mma>(group, scratch.ring, steps, begin, sums);
    auto const rows_left = static_cast<int>(min(a.rows() - first_row, std::int64_t{rows}));
    auto const columns_left = static_cast<int>(min(b.rows() - first_column, std::int64_t{columns}));
    mma::each(group, sums, [&](int row, int column, typename mma::sum_type sum) {
      if (row < rows_left && column < columns_left) {
        epilogue(first_row + row, first_column + column, sum);
      }
    });
  }
};

}  // namespace v0
}  // namespace tessera
