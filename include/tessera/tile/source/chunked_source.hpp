// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ChunkedSource: a FetchedSource whose lanes fetch chunks of 16 bytes of a row, of which it is known which lane has
/// which. A program can then multiply what a lane has fetched without moving it to other lanes.
///
///     if (source.has_whole_chunks()) {
///       source.fetch(group, next, first_row, first_column);   // lane l has chunks l, l + Group::size, ...
///       source.store(group, next, tile);                      // of the tile, row after row
///     }
///
/// The tile has neither operator() nor chunk() but lane_chunk(i, part): where a lane stores number `part` of the pieces
/// of 16 bytes that its i-th chunk becomes, which may be in its registers. S::code_chunk::size elements are a chunk.
///
/// Law: a lane stores there what the same chunks are in a tile with elements.
#pragma once

#include <tessera/core/because.hpp>
#include <tessera/tile/source/fetched_source.hpp>

namespace tessera {
inline namespace v0 {

/// A FetchedSource that says how many elements of a row a chunk has, and whether the matrix has whole chunks.
// clang-format off
template <class S, class G, class Tile>
concept ChunkedSource =
    FetchedSource<S, G, Tile> &&
    (requires(S const& s) {
       requires S::code_chunk::size > 0;
       static_cast<bool>(s.has_whole_chunks());
     } || because<"a ChunkedSource has code_chunk::size, the elements of a chunk, "
                  "and has_whole_chunks() const: whether rows are whole chunks at multiples of 16 bytes">);
// clang-format on

}  // namespace v0
}  // namespace tessera
