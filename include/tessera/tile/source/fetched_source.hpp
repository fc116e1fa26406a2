// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// FetchedSource: a TileSource that loads in two steps, so that what it reads is on its way to registers while the
/// group does other work.
///
///     typename S::template fetched<Group, Tile> next;       // registers of the group
///     source.fetch(group, next, first_row, first_column);   // not negative; the column a multiple of Tile::columns
///     ...
///     source.store(group, next, tile);                      // waits, and writes the tile; then sync the group
///
/// Law, checked by `tessera::testing::check_laws<S>(source, group)` with those of a TileSource: fetch() and store()
/// give the tile that load() gives.
#pragma once

#include <cstdint>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

/// A TileSource that fetches a tile to registers of group G and stores it to a Tile later.
// clang-format off
template <class S, class G, class Tile>
concept FetchedSource =
    TileSource<S> &&
    (requires { typename S::template fetched<G, Tile>; }
        || because<"a FetchedSource names what is on its way: template <class Group, class Tile> struct fetched">) &&
    (requires(S const& s, G const& group, typename S::template fetched<G, Tile>& next, Tile& tile, std::int64_t first) {
       s.fetch(group, next, first, first);
       s.store(group, next, tile);
     } || because<"a FetchedSource has fetch(group, fetched&, first_row, first_column) const "
                  "and store(group, fetched const&, tile) const">);
// clang-format on

/// What a group has of a tile on its way to registers: nothing, where the source has no fetch().
template <class S, class G, class Tile>
struct source_in_flight {
  static constexpr bool is_fetched = false;  ///< whether the source has fetch()
};
/// The same of a FetchedSource.
template <class S, class G, class Tile>
requires FetchedSource<S, G, Tile>
struct source_in_flight<S, G, Tile> {
  static constexpr bool is_fetched = true;     ///< whether the source has fetch()
  typename S::template fetched<G, Tile> data;  ///< what is on its way
};

}  // namespace v0
}  // namespace tessera
