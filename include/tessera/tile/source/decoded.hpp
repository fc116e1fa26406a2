// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `decoded`: a TileSource of a row-major matrix that is stored as compressed blocks. To load a tile, the group decodes
/// the blocks that cover it into scratch and copies the tile's elements from there.
///
///     using reader = weight_reader<bfloat16, keep_mantissa<7>>;        // or anything else that decodes blocks
///     using source = decoded<reader>;
///     struct scratch_type {                                            // of the program
///       source::scratch_type weights;
///       ...
///     };
///     ...
///     source const matrix = source::open(group, blocks, rows, columns, scratch.weights);
///     matrix.load(group, tile, first_row, first_column);
///
/// A block stays in scratch until another is needed, so tiles that follow each other along a row decode each block
/// once. A Reader has value_type, scratch_type (trivial), largest_block, block_weights(), and decode(group, block,
/// values, scratch). All lanes reach decode(), and all lanes see the values after it.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

template <class Reader>
struct decoded {
  using value_type = typename Reader::value_type;

  /// The scratch of a group that loads tiles.
  struct scratch_type {
    /// The values of the block `held`.
    alignas(64) value_type weights[Reader::largest_block];
    typename Reader::scratch_type reader;  ///< the reader's scratch
    std::int64_t held;                     ///< number of the block whose values are in `weights`
  };

  Reader reader;              ///< decodes a block
  std::int64_t row_count;     ///< rows of the matrix
  std::int64_t column_count;  ///< columns of the matrix
  scratch_type* scratch;      ///< the group's scratch

  /// Makes a source for this group, whose scratch holds no block yet.
  template <class G>
  TESSERA_FN static decoded open(G const& group, Reader const& reader, std::int64_t rows, std::int64_t columns,
                                 scratch_type& scratch) {
    for (int lane : group) {
      if (is_first(lane)) {
        scratch.held = nothing;
      }
    }
    group.sync();
    return {reader, rows, columns, &scratch};
  }

  TESSERA_FN constexpr std::int64_t rows() const { return row_count; }
  TESSERA_FN constexpr std::int64_t columns() const { return column_count; }

  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    for (int lane : group) {
      for (int i = lane; i < Tile::rows * Tile::columns; i += G::size) {
        int const row = i / Tile::columns;
        int const column = i % Tile::columns;
        if (!is_inside(first_row + row, first_column + column)) {
          tile(row, column) = value_type{};
        }
      }
    }
    std::int64_t const begin = max(first_column, std::int64_t{0});
    std::int64_t const end = min(first_column + Tile::columns, column_count);
    for (int row = 0; row < Tile::rows; ++row) {
      if (begin < end && is_inside(first_row + row, begin)) {
        load_row(group, tile, row, (first_row + row) * column_count, begin, end, first_column);
      }
    }
    group.sync();
  }

 private:
  static constexpr std::int64_t nothing = -1;

  TESSERA_FN constexpr bool is_inside(std::int64_t row, std::int64_t column) const {
    return row >= 0 && row < row_count && column >= 0 && column < column_count;
  }

  /// Columns [begin, end) of a row of the tile; `origin` is the position of the row's first element in the matrix.
  template <class G, class Tile>
  TESSERA_FN void load_row(G const& group, Tile& tile, int row, std::int64_t origin, std::int64_t begin,
                           std::int64_t end, std::int64_t first_column) const {
    std::int64_t const size = reader.block_weights();
    for (std::int64_t block = (origin + begin) / size; block * size < origin + end; ++block) {
      hold(group, block);
      std::int64_t const from = max(begin, block * size - origin);
      std::int64_t const to = min(end, (block + 1) * size - origin);
      for (int lane : group) {
        for (std::int64_t column = from + lane; column < to; column += G::size) {
          tile(row, static_cast<int>(column - first_column)) = scratch->weights[origin + column - block * size];
        }
      }
    }
  }

  template <class G>
  TESSERA_FN void hold(G const& group, std::int64_t block) const {
    if (scratch->held == block) {
      return;
    }
    group.sync();  // the block that is replaced has been read
    reader.decode(group, block, scratch->weights, scratch->reader);
    for (int lane : group) {
      if (is_first(lane)) {
        scratch->held = block;
      }
    }
    group.sync();
  }
};

/// The matrix of `decoded` before a group has scratch for it: programs take it as an argument and open it, see
/// tile/source/open_source.hpp.
///
///     gemm_tiles<bfloat16, dense<bfloat16>, decoded_matrix<reader>, Epilogue> const program{
///         {inputs}, {blocks, rows, columns}, epilogue};
///
/// A tile of several rows decodes a block for each row, and again for the next tile of the row. That is right for any
/// matrix, and quick where a block holds many rows; compressed_linear decodes blocks of long rows once.
template <class Reader>
struct decoded_matrix {
  using value_type = typename Reader::value_type;
  using scratch_type = typename decoded<Reader>::scratch_type;
  static constexpr int lanes = Reader::lanes;

  Reader reader;              ///< decodes a block
  std::int64_t row_count;     ///< rows of the matrix
  std::int64_t column_count;  ///< columns of the matrix

  TESSERA_FN constexpr std::int64_t rows() const { return row_count; }
  TESSERA_FN constexpr std::int64_t columns() const { return column_count; }

  /// Makes a source for this group, whose scratch holds no block yet.
  template <class G>
  TESSERA_FN decoded<Reader> open(G const& group, scratch_type& scratch) const {
    return decoded<Reader>::open(group, reader, row_count, column_count, scratch);
  }
};

}  // namespace v0
}  // namespace tessera
