// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `filtered`: the TileSource of a matrix of which only some blocks are kept. All others are zeros, whatever memory
/// holds there, and are never read.
///
///     filtered<bfloat16> const gradients{matrix, kept, 128, 64};   // kept(i, j): of block i, j of 128 x 64 elements
///     if (!gradients.is_zero(row, 64, column, 32)) { gradients.load(group, tile, row, column); }
#pragma once

#include <cstdint>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/detail/load_elements.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

template <class T>
struct filtered {
  using value_type = T;

  matrix_view<T const> matrix;           ///< rows x columns, any strides
  matrix_view<std::uint8_t const> kept;  ///< for each block 0 if it is zeros
  int block_rows;                        ///< rows of a block
  int block_columns;                     ///< columns of a block

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("rows of the source", matrix);
    use("marks of blocks", kept);
  }
  TESSERA_FN constexpr std::int64_t rows() const { return matrix.extent(0); }
  TESSERA_FN constexpr std::int64_t columns() const { return matrix.extent(1); }
  /// Throws shape_error, in the name of `function`, where there is not a mark for each block.
  void check(char const* function, char const* what) const {
    tessera::check<shape_error>(block_rows > 0 && block_columns > 0, function, ": blocks of the ", what, " are ",
                                block_rows, " x ", block_columns, " but neither extent may be below 1");
    std::int64_t const bands = divide_up(rows(), std::int64_t{block_rows});
    std::int64_t const blocks = divide_up(columns(), std::int64_t{block_columns});
    tessera::check<shape_error>(kept.extent(0) == bands && kept.extent(1) == blocks, function,
                                ": the marks of blocks of the ", what, " are ", kept.extent(0), " x ", kept.extent(1),
                                " but must be ", bands, " x ", blocks);
  }

  /// Whether a part of the matrix is zeros because none of its blocks is kept.
  TESSERA_FN constexpr bool is_zero(std::int64_t first_row, std::int64_t row_count, std::int64_t first_column,
                                    std::int64_t column_count) const {
    return !finds(true, first_row, row_count, first_column, column_count);
  }

  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    if (!finds(false, first_row, Tile::rows, first_column, Tile::columns)) {
      detail::load_rows(group, tile, matrix, rows(), detail::own_rows{}, first_row, first_column);
      return;
    }
    detail::load_along_rows(group, tile, *this, first_row, first_column,
                            [&, this](std::int64_t row, std::int64_t column) {
                              return kept(row / block_rows, column / block_columns) != 0 ? matrix(row, column) : T{};
                            });
    group.sync();
  }

 private:
  /// Whether a part has a block that is kept (`wanted`), or one that is not.
  TESSERA_FN constexpr bool finds(bool wanted, std::int64_t first_row, std::int64_t row_count,
                                  std::int64_t first_column, std::int64_t column_count) const {
    std::int64_t const last_row = min(first_row + row_count, rows());
    std::int64_t const last_column = min(first_column + column_count, columns());
    for (std::int64_t row = max(first_row, std::int64_t{0}) / block_rows; row * block_rows < last_row; ++row) {
      for (std::int64_t column = max(first_column, std::int64_t{0}) / block_columns;
           column * block_columns < last_column; ++column) {
        if ((kept(row, column) != 0) == wanted) {
          return true;
        }
      }
    }
    return false;
  }
};

static_assert(TileSource<filtered<float>>);

}  // namespace v0
}  // namespace tessera
