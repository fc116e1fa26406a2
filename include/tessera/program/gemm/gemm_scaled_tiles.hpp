// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_scaled_tiles`: the matrix product a b^T of two matrices of exact codes with scales for groups of columns
/// (tile/source/scaled_source.hpp), with an epilogue that takes the sums. It is the portable program of such products,
/// and what they mean: products of codes are added up over a part of the depth in which neither scale changes, in the
/// operand's own type; the sums, times both scales, are added up in fp32, from the first such part to the last.
///
/// A group of 128 lanes computes 64 x 64 sums. Codes are read one by one.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/program/gemm/sum_epilogue.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/source/scaled_source.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/tile_order.hpp>

namespace tessera {
inline namespace v0 {

/// A, B: ScaledSources of the same elements, with the depth as columns. Epilogue: store_sums, which gets floats.
template <ScaledSource A, ScaledSource B, SumEpilogue Epilogue>
struct gemm_scaled_tiles {
  using operand_type = typename A::value_type;
  static_assert(std::is_same_v<operand_type, typename B::value_type>,
                "tessera: both operands of a product have elements of one type");
  static constexpr int lanes = 128;
  static constexpr int rows = 64;                                           ///< rows of a tile
  static constexpr int columns = 64;                                        ///< columns of a tile
  static constexpr int step = 32 / static_cast<int>(sizeof(operand_type));  ///< depth of one multiplication
  static constexpr int depth = 2 * step;                                    ///< depth that is staged at a time

  struct scratch_type {
    staged_tile<operand_type, rows, depth> a;     ///< staged rows of a
    staged_tile<operand_type, columns, depth> b;  ///< staged rows of b, which are columns of the result
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
    using mma = gemm_tile<operand_type, shape<rows, columns, step>, G>;
    tile_coordinate const tile = order().at(which);
    std::int64_t const first_row = std::int64_t{tile.row} * rows;
    std::int64_t const first_column = std::int64_t{tile.column} * columns;
    typename mma::sum_tile sums;
    typename mma::sum_tile totals;
    mma::clear(group, sums);
    mma::clear(group, totals);
    for (std::int64_t first = 0; first < a.columns();) {
      std::int64_t const part = min(min(next(first, A::group), next(first, B::group)), a.columns());
      std::int64_t const end = min(first + depth, part);
      group.sync();  // all lanes have read the tiles before
      load(group, scratch.a, a, first_row, first, end);
      load(group, scratch.b, b, first_column, first, end);
      group.sync();
      multiply_staged<mma>(group, scratch.a, scratch.b, sums);
      if (end == part) {
        mma::each_pair(group, sums, totals, scaling{a, b, first_row, first_column, first});
      }
      first = end;
    }
    mma::each(group, totals, inside{epilogue, first_row, first_column, a.rows(), b.rows()});
  }

 private:
  using sum_type = typename gemm_operand<operand_type>::sum_type;
  static_assert(sizeof(sum_type) == sizeof(float), "tessera: totals are floats in the place of sums");

  /// The first column after this one with which a group of so many begins.
  TESSERA_FN static constexpr std::int64_t next(std::int64_t column, std::int64_t group) {
    return (column / group + 1) * group;
  }
  /// Stages columns `first` to `end` of a source's rows, and zeros beyond.
  template <class G, class Tile, class S>
  TESSERA_FN static void load(G const& group, Tile& tile, S const& from, std::int64_t first_row, std::int64_t first,
                              std::int64_t end) {
    for (int lane : group) {
      for (int i = lane; i < Tile::rows * Tile::columns; i += G::size) {
        std::int64_t const row = first_row + i / Tile::columns;
        std::int64_t const column = first + i % Tile::columns;
        tile(i / Tile::columns, i % Tile::columns) =
            row < from.rows() && column < end ? from.exact(row, column) : operand_type{};
      }
    }
  }
  /// Adds scaled sums to totals, which are floats whatever the type of sums, and clears the sums.
  struct scaling {
    A const& a;
    B const& b;
    std::int64_t first_row;
    std::int64_t first_column;
    std::int64_t at;  ///< a column of both groups

    TESSERA_FN void operator()(int row, int column, sum_type& sum, sum_type& total) const {
      if (first_row + row < a.rows() && first_column + column < b.rows()) {
        float const scale = a.scale(first_row + row, at / A::group) * b.scale(first_column + column, at / B::group);
        total = bit_cast<sum_type>(bit_cast<float>(total) + scale * static_cast<float>(sum));
      }
      sum = sum_type{};
    }
  };
  /// Calls the epilogue for sums inside of the result only.
  struct inside {
    Epilogue const& epilogue;
    std::int64_t first_row;
    std::int64_t first_column;
    std::int64_t row_count;
    std::int64_t column_count;

    TESSERA_FN void operator()(int row, int column, sum_type total) const {
      if (first_row + row < row_count && first_column + column < column_count) {
        epilogue(first_row + row, first_column + column, bit_cast<float>(total));
      }
    }
  };
};

}  // namespace v0
}  // namespace tessera
