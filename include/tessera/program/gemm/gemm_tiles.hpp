// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_tiles`: the matrix product a b^T of two tile sources, tile by tile, with an epilogue that takes the sums. It
/// is the portable program of matrix products.
///
/// A group of 128 lanes, or of as many as a source needs, computes 64 x 64 sums: it loads 64 bytes of depth of 64 rows
/// of a and of b into scratch and multiplies them, from the first to the last column of the depth, so that a sum is
/// always added up in the same order.
///
/// Where both sources have words (SourceOfWords) the next steps are on their way while one is multiplied (`pipelined`):
/// from sm_80 on, which copies asynchronously. 4096^3 on one H200, in ms, step by step and with steps on their way:
///
///     rows begin at multiples of   elements   4 bytes        8              16
///     bf16                         5.8        5.80 -> 1.02   5.79 -> 0.83   1.97 -> 0.82
///     tf32                         -          8.47 -> 1.82   8.44 -> 1.61
///
/// Three stages are up to 1.3 times as fast as two. begin_load() of `dense`, which asks in each step whether rows have
/// whole chunks, and of rows without them is done at once, takes 1.1 ms of the last, but 11 of the first.
///
/// A, B: TileSources of gemm_operand<Operand>::value_type, or sources that need scratch (tile/source/open_source.hpp),
/// both with the depth as columns. If A has is_zero(first_row, rows, first_column, columns), parts for which it returns
/// true are neither loaded nor multiplied. The epilogue is called once for each sum inside of the result: see
/// program/gemm/store_sums.hpp.
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
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/async_source.hpp>
#include <tessera/tile/source/open_source.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/tile_order.hpp>

namespace tessera {
inline namespace v0 {

template <class Operand, AnySource A, AnySource B, SumEpilogue Epilogue>
struct gemm_tiles {
  using operand_type = typename gemm_operand<Operand>::value_type;
  static constexpr int lanes = lanes_for_sources<A, B>(128);
  static constexpr int rows = 64;                                           ///< rows of a tile
  static constexpr int columns = 64;                                        ///< columns of a tile
  static constexpr int step = 32 / static_cast<int>(sizeof(operand_type));  ///< depth of one multiplication
  static constexpr int depth = 2 * step;                                    ///< depth that is staged at a time
  /// Stages of steps on their way, where both sources have words.
  static constexpr int stages = SourceOfWords<A> && SourceOfWords<B> ? 3 : 1;
  /// So that the loop over words does not take registers from the one over elements: 128 for each lane, and no spills.
  static constexpr int blocks_per_multiprocessor = stages > 1 ? 4 : 1;

  struct scratch_type {
    staged_tile<operand_type, rows, depth> a[stages];     ///< staged rows of a
    staged_tile<operand_type, columns, depth> b[stages];  ///< staged rows of b, which are columns of the result
    source_scratch<A> of_a;                               ///< scratch for loading a
    source_scratch<B> of_b;                               ///< scratch for loading b
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
    tile_coordinate const tile = order().at(which);
    std::int64_t const first_row = std::int64_t{tile.row} * rows;
    std::int64_t const first_column = std::int64_t{tile.column} * columns;
    typename mma::sum_tile sums;
    mma::clear(group, sums);
    if constexpr (stages > 1 && !is_serial_group<G>) {
      if (!multiply_words<mma>(group, a, b, {first_row, first_column}, scratch, sums)) {
        multiply_steps<mma>(group, first_row, first_column, scratch, sums);
      }
    } else {
      multiply_steps<mma>(group, first_row, first_column, scratch, sums);
    }
    mma::each(group, sums, inside{epilogue, first_row, first_column, a.rows(), b.rows()});
  }

 private:
  /// Adds the products of all steps, each of which is loaded and multiplied.
  template <class Tile, Group G>
  TESSERA_FN void multiply_steps(G const& group, std::int64_t first_row, std::int64_t first_column,
                                 scratch_type& scratch, typename Tile::sum_tile& sums) const {
    auto const& a_source = open_source(group, a, scratch.of_a);
    auto const& b_source = open_source(group, b, scratch.of_b);
    for (std::int64_t first = 0; first < a.columns(); first += depth) {
      if constexpr (requires { a.is_zero(first_row, std::int64_t{rows}, first, std::int64_t{depth}); }) {
        if (a.is_zero(first_row, rows, first, depth)) {
          continue;
        }
      }
      group.sync();  // all lanes have read the tiles before
      a_source.load(group, scratch.a[0], first_row, first);
      b_source.load(group, scratch.b[0], first_column, first);
      group.sync();
      multiply_staged<Tile>(group, scratch.a[0], scratch.b[0], sums);
    }
  }
  /// Calls the epilogue for sums inside of the result only.
  struct inside {
    Epilogue const& epilogue;
    std::int64_t first_row;
    std::int64_t first_column;
    std::int64_t row_count;
    std::int64_t column_count;

    template <class Sum>
    TESSERA_FN void operator()(int row, int column, Sum sum) const {
      if (first_row + row < row_count && first_column + column < column_count) {
        epilogue(first_row + row, first_column + column, sum);
      }
    }
  };
};

}  // namespace v0
}  // namespace tessera
