// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// AsyncSource: a TileSource that can start to load a tile into scratch and go on, so that what it reads is on its way
/// while the group does other work, and takes no registers.
///
///     source.begin_load(group, tile, first_row, first_column);   // not negative
///     copies_in_flight<Group>::commit();
///     ...
///     copies_in_flight<Group>::template await<0>();              // tile/copies_in_flight.hpp
///     group.sync();                                              // the tile is what load() makes
///
/// tile/pipelined.hpp has a loop over steps of which several are on their way. Law, checked by
/// `tessera::testing::check_laws<S>(source, group)` with those of a TileSource: begin_load(), once awaited, gives the
/// tile that load() gives.
#pragma once

#include <cstdint>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

/// A TileSource that a group G can have load a Tile asynchronously.
// clang-format off
template <class S, class G, class Tile>
concept AsyncSource =
    TileSource<S> &&
    (requires(S const& s, G const& group, Tile& tile, std::int64_t first) {
       s.begin_load(group, tile, first, first);
     } || because<"an AsyncSource starts to load: begin_load(group, tile, first_row, first_column) const">);
// clang-format on

}  // namespace v0
}  // namespace tessera
