// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `lane_rows<Value, Rows, Columns, Group>`: the words for rows (RowWords, concepts/tile_mma.hpp) of values that no
/// product has left, but that are loaded or made: a few rows, whose neighbouring columns neighbouring lanes have. What
/// is read from memory side by side is reduced and weighed so, and parts of a row are merged (settle_parts.hpp).
///
///     using rows = tessera::lane_rows<float, 4, 128, Group>;
///     rows::sum_tile values;
///     rows::each_with_row(group, values, [&](int row, int column, float& value) { value = from[row][column]; });
///     rows::row_values<float> largest;
///     rows::fold_lanes(group, tessera::maximum_reducer<float>{}, values, largest);
///     rows::merge_lanes(group, tessera::maximum_reducer<float>{}, largest);
///
/// On a GPU Group is cuda_warp, each lane has every 32nd column of all rows, and Columns is a multiple of 32. Rows are
/// reduced side by side, so that their exchanges overlap.
///
/// This header has plain arrays. tile/rows/lane_rows.cuh has the same for warps. nvcc includes it from here;
/// under NVRTC it must be included by name.
#pragma once

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/config.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/serial/group.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// Rows of values in a plain array.
template <class Value, int Rows, int Columns, class G>
struct plain_lane_rows {
  using group_type = G;
  using sum_type = Value;
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  struct sum_tile {
    Value values[Rows][Columns];
  };
};

}  // namespace detail

template <class Value, int Rows, int Columns, class G = serial_group<1>>
struct lane_rows : detail::plain_row_words<detail::plain_lane_rows<Value, Rows, Columns, G>> {
  using base = detail::plain_row_words<detail::plain_lane_rows<Value, Rows, Columns, G>>;  ///< the words
  using typename base::group_type, typename base::sum_tile;

  /// The value of column `first` + `further` of a row, which all lanes get. All lanes reach this call. `first`: a
  /// multiple of 32 that compilers for devices see; `further` is less than 32.
  TESSERA_FN static constexpr Value at(group_type const&, sum_tile const& values, int row, int first, int further) {
    return values.values[row][first + further];
  }
};

static_assert(RowWords<lane_rows<float, 2, 3>>);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/rows/lane_rows.cuh>
#endif
