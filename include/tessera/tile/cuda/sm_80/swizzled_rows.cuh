// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `swizzled_rows<T, Rows, Columns>`: a tile in shared memory without gaps between its rows, for mma.sync: a box for
/// each 128 bytes of the columns, which lies as a swizzled_tile does (tile/swizzled_tile.hpp). A staged_tile, whose
/// rows lie 16 bytes further apart than they are long, takes an eighth more for rows of 128 bytes and a sixteenth more
/// for rows of 256. It is filled by chunk(row, column) and multiplied along the depth as a staged_tile is:
/// swizzled_rows<float16, 64, 128> holds 64 columns of a product, 128 numbers deep.
///
/// Eight rows of a chunk lie in different banks of shared memory, so that loads and copies take as long as those of a
/// staged_tile; a lane has four addresses, for each 32 bytes of a box, in place of one.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_80/swizzled_operands.cuh>
#include <tessera/tile/staged_tile.hpp>

namespace tessera {
inline namespace v0 {

template <class T, int Rows, int Columns>
struct swizzled_rows {
  using value_type = T;
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  static constexpr int box_columns = 128 / static_cast<int>(sizeof(T));  ///< columns of a box
  static_assert(Rows % 8 == 0 && Columns % box_columns == 0,
                "tessera: swizzled rows are a multiple of 8, each of whole 128 bytes");

  /// Boxes of rows of 128 bytes, each a permutation of its chunks.
  alignas(128) T values[Rows * Columns];

  /// Columns `column` to `column` + 16 / sizeof(T) - 1 of a row; `column` is a multiple of that number.
  TESSERA_FN tile_chunk<T>& chunk(int row, int column) {
    constexpr auto of_box = static_cast<unsigned>(box_columns);
    constexpr auto of_chunk = static_cast<unsigned>(tile_chunk<T>::size);
    auto const r = static_cast<unsigned>(row);
    auto const c = static_cast<unsigned>(column);
    unsigned const in_box = (c % of_box / of_chunk ^ r % 8) * of_chunk;
    return *reinterpret_cast<tile_chunk<T>*>(values +
                                             ((c / of_box * static_cast<unsigned>(Rows) + r) * of_box + in_box));
  }
  /// Loads the operand a of M from the columns that begin at `column`, a multiple of M's depth.
  template <class M>
  __device__ __forceinline__ void load_a(typename M::group_type const& group, typename M::a_tile& to,
                                         int column) const {
    using operands = swizzled_operands<M>;
    constexpr auto along = swizzled_order::along_depth;
    std::uint32_t const from = place_of<M>(operands::template offset_of_a<along>(group), column);
#pragma unroll
    for (int tile = 0; tile < operands::registers::row_tiles; ++tile) {
      operands::template load_rows<along>(to.words[0][tile], from, 0, static_cast<std::uint32_t>(tile));
    }
  }
  /// Loads the operand b of M, whose columns are rows of the tile, in the same way.
  template <class M>
  __device__ __forceinline__ void load_b_transposed(typename M::group_type const& group, typename M::b_tile& to,
                                                    int column) const {
    using operands = swizzled_operands<M>;
    constexpr auto along = swizzled_order::along_depth;
    static_assert(operands::registers::column_tiles % 2 == 0, "tessera: 16 columns are loaded at a time");
    std::uint32_t const from = place_of<M>(operands::template offset_of_b<along>(group), column);
#pragma unroll
    for (int pair = 0; pair < operands::registers::column_tiles / 2; ++pair) {
      operands::template load_columns<along>(to, from, 0, static_cast<std::uint32_t>(pair));
    }
  }

 private:
  /// The shared address of a lane's chunk of the depth of M that begins at `column`, from its offset in the first one.
  /// Boxes and tiles begin at multiples of 128 bytes: so all of them have the same four offsets of a lane.
  template <class M>
  __device__ __forceinline__ std::uint32_t place_of(std::uint32_t offset, int column) const {
    auto const step = static_cast<std::uint32_t>(column % box_columns / M::depth);
    return (offset ^ 32 * step) + shared_address(values) +
           static_cast<std::uint32_t>(column / box_columns * Rows * 128);
  }
};

}  // namespace v0
}  // namespace tessera
