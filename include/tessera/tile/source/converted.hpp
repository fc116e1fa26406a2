// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `converted`: the TileSource of a matrix of one Scalar whose elements are converted to another on the way into the
/// tile. So products take weights of 8 bits without scales, and scalars of a user's own, which no tensor core knows.
///
///     converted<float8_e4m3, bfloat16> const weights(matrix);              // matrix: a view of float8_e4m3
///     linear<bfloat16>::forward(exec, inputs, weights, outputs);
///
/// Elements are rounded where Value has fewer bits. Where rows lie at multiples of 16 bytes, 16 bytes of them are read
/// at a time. Matrices of elements of one byte are also loaded in two steps, as those of a Quantizer's codes are
/// (tile/source/dequantized.hpp).
#pragma once

#include <cstdint>

#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/unscaled.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/store_values.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// From: the type of the matrix in memory; Value: the type of elements of tiles.
template <Scalar From, Scalar Value>
struct converted : dequantized<unscaled_quantizer<From>, Value> {
  /// The source of a matrix of any strides.
  TESSERA_FN constexpr explicit converted(matrix_view<From const> matrix) : base{{}, matrix, {}} {}

  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    if constexpr (moves_pieces<Tile>) {
      if (first_row >= 0 && first_column >= 0 && first_column % piece == 0) {
        load_pieces(group, tile, first_row, first_column);
        return;
      }
    }
    base::load(group, tile, first_row, first_column);
  }

 private:
  using base = dequantized<unscaled_quantizer<From>, Value>;
  /// Elements that a lane reads and writes at a time: whole 16 bytes of both.
  static constexpr int piece = max(tile_chunk<From>::size, tile_chunk<Value>::size);
  /// Whether rows of a tile are whole pieces. Elements of one byte are loaded as codes are.
  template <class Tile>
  static constexpr bool moves_pieces = sizeof(From) > 1 && 16 % sizeof(From) == 0 && Tile::columns % piece == 0 &&
                                       requires(Tile& tile) {
    tile.chunk(0, 0);
  };

  template <class G, class Tile>
  TESSERA_FN void load_pieces(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    constexpr int in_row = Tile::columns / piece;
    constexpr int read = tile_chunk<From>::size;
    constexpr int written = tile_chunk<Value>::size;
    row_chunks<From const> const from{this->codes};
    for (int lane : group) {
      for (int i = lane; i < Tile::rows * in_row; i += G::size) {
        int const row = i / in_row;
        int const column = i % in_row * piece;
        bool const is_inside = first_row + row < this->rows();
        float values[piece / written][written] = {};
        for (int at = 0; at < piece && is_inside; at += read) {
          tile_chunk<From> const chunk = from.load(first_row + row, first_column + column + at);
          for (int j = 0; j < read; ++j) {
            values[(at + j) / written][(at + j) % written] = static_cast<float>(tessera::load(chunk.values[j]));
          }
        }
        for (int at = 0; at < piece; at += written) {
          store_values<Value>(group, values[at / written], true, tile.chunk(row, column + at));
        }
      }
    }
    group.sync();
  }
};

}  // namespace v0
}  // namespace tessera
