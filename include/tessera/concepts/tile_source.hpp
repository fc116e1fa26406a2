// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// TileSource: anything that a tile can be loaded from, as if it were a matrix: a matrix in memory, dequantized codes,
/// decoded weights, gathered rows, projected rows. One kernel body with another source is another algorithm.
///
/// The lanes of a group load together. A tile is anything with `rows`, `columns` and `tile(row, column)` to write
/// through; elements of the tile outside the source become zero.
///
///     source.load(group, tile, first_row, first_column);
///
/// A source of several views may have check(char const* function, char const* what) const, which calls ask before they
/// enqueue anything (view/check_parts.hpp), and which throws shape_error where its views do not fit together.
///
/// Laws, checked by `tessera::testing::check_laws<S>(source, group)`:
///   1. An element has one value: tiles that overlap agree, whatever their shape.
///   2. Outside the source a tile is filled with zeros, and every element of it is written.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The least that a group must be, a single lane, to ask whether a TileSource can load.
struct lone_lane {
  static constexpr int size = 1;
  struct iterator {
    int lane;
    TESSERA_FN constexpr int operator*() const { return lane; }
    TESSERA_FN constexpr iterator& operator++() {
      ++lane;
      return *this;
    }
    TESSERA_FN constexpr bool operator!=(iterator other) const { return lane != other.lane; }
  };
  TESSERA_FN constexpr iterator begin() const { return {0}; }
  TESSERA_FN constexpr iterator end() const { return {1}; }
  TESSERA_FN constexpr void sync() const {}
};

/// The least that a tile must be.
template <class T, int Rows, int Columns>
struct plain_tile {
  using value_type = T;
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  T values[Rows * Columns];
  TESSERA_FN constexpr T& operator()(int row, int column) { return values[row * Columns + column]; }
  TESSERA_FN constexpr T const& operator()(int row, int column) const { return values[row * Columns + column]; }
};

}  // namespace detail

// clang-format off
template <class S>
concept TileSource =
    (requires { requires std::is_trivially_copyable_v<S>; }
        || because<"a TileSource is trivially copyable, because kernels take it by value">) &&
    (requires { requires std::is_trivially_copyable_v<typename S::value_type>; }
        || because<"a TileSource names its elements: using value_type = ...;">) &&
    (requires(S const& s) {
       requires std::is_same_v<decltype(s.rows()), std::int64_t>;
       requires std::is_same_v<decltype(s.columns()), std::int64_t>;
     } || because<"a TileSource has std::int64_t rows() const and std::int64_t columns() const">) &&
    (requires(S const& s, detail::lone_lane const& group, detail::plain_tile<typename S::value_type, 2, 2>& tile,
              std::int64_t first) {
       s.load(group, tile, first, first);
     } || because<"a TileSource has load(): template <class Group, class Tile> void load(Group const&, Tile&, "
                  "std::int64_t first_row, std::int64_t first_column) const">);
// clang-format on

}  // namespace v0
}  // namespace tessera
