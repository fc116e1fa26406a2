// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gathered_columns`: the TileSource whose columns are some rows of a matrix, by number: the transpose of `gathered`,
/// for products that sum over the rows.
///
///     gathered_columns<bfloat16> const tokens{hidden, order};   // element (k, i) is hidden(order[i], k), or zero
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/detail/load_columns.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

template <class T>
struct gathered_columns {
  using value_type = T;

  matrix_view<T const> matrix;           ///< rows x columns, any strides
  array_view<std::int64_t const> order;  ///< for each column the number of its row; -1 stands for zeros

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("rows of the source", matrix);
    use("numbers of rows", order);
  }
  TESSERA_FN constexpr std::int64_t rows() const { return matrix.extent(1); }
  TESSERA_FN constexpr std::int64_t columns() const { return order.size(); }

  /// Loads a tile; neighbouring lanes read along rows of the matrix.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    if constexpr (std::is_same_v<G, serial_group<G::size>> && detail::has_columns_by_eights<Tile>()) {
      if (matrix.stride(1) == 1) {
        return detail::load_columns(tile, first_row, rows(), [&, this](int at) -> T const* {
          std::int64_t const column = first_column + at;
          std::int64_t const from = column >= 0 && column < columns() ? order[column] : -1;
          return from >= 0 && from < matrix.extent(0) ? &matrix.data[from * matrix.stride(0)] : nullptr;
        });
      }
    }
    for (int lane : group) {
      for (int i = lane; i < Tile::rows * Tile::columns; i += G::size) {
        std::int64_t const row = first_row + i % Tile::rows;
        std::int64_t const column = first_column + i / Tile::rows;
        bool const is_inside = row >= 0 && row < rows() && column >= 0 && column < columns();
        std::int64_t const from = is_inside ? order[column] : -1;
        tile(i % Tile::rows, i / Tile::rows) = from >= 0 && from < matrix.extent(0) ? matrix(from, row) : T{};
      }
    }
    group.sync();
  }
};

static_assert(TileSource<gathered_columns<float>>);

}  // namespace v0
}  // namespace tessera
