// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// TileSources of the channels of all heads of a token, one head after the other: `joined_heads`, whose rows are
/// tokens, and `turned_heads`, whose columns are tokens.
///
///     joined_heads<bfloat16> const keys{heads};      // heads x tokens x channels
///     // element (token, head * channels + channel) is heads(head, token, channel)
#pragma once

#include <cstdint>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/tile/source/detail/load_elements.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

template <class T>
struct joined_heads {
  using value_type = T;

  view<T const, 3> heads;  ///< heads x tokens x channels

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("heads of the source", heads);
  }
  TESSERA_FN constexpr std::int64_t rows() const { return heads.extent(1); }
  TESSERA_FN constexpr std::int64_t columns() const { return heads.extent(0) * heads.extent(2); }
  /// A channel of a head at a token; columns are the channels of all heads, one head after the other.
  TESSERA_FN constexpr T operator()(std::int64_t token, std::int64_t column) const {
    return heads(column / heads.extent(2), token, column % heads.extent(2));
  }

  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    detail::load_along_rows(group, tile, *this, first_row, first_column, *this);
    group.sync();
  }
};

/// The transpose of joined_heads: channels of all heads x tokens.
template <class T>
struct turned_heads {
  using value_type = T;

  joined_heads<T> joined;  ///< the matrix that is transposed

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    joined.each_view(use);
  }
  TESSERA_FN constexpr std::int64_t rows() const { return joined.columns(); }
  TESSERA_FN constexpr std::int64_t columns() const { return joined.rows(); }

  /// Loads a tile; neighbouring lanes read neighbouring channels.
  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    for (int lane : group) {
      for (int i = lane; i < Tile::rows * Tile::columns; i += G::size) {
        std::int64_t const row = first_row + i % Tile::rows;
        std::int64_t const column = first_column + i / Tile::rows;
        bool const is_inside = row >= 0 && row < rows() && column >= 0 && column < columns();
        tile(i % Tile::rows, i / Tile::rows) = is_inside ? joined(column, row) : T{};
      }
    }
    group.sync();
  }
};

static_assert(TileSource<joined_heads<float>> && TileSource<turned_heads<float>>);

}  // namespace v0
}  // namespace tessera
