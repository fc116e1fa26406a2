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
///
/// Which asynchronous copies a matrix allows follows from its address and strides, which are known when a program runs.
/// A SourceOfWords says then whether it has words of so many bytes, 4 or 8, and is an AsyncSource of these:
///
///     bool const is_done = with_words(a, b, [&](auto const& a_words, auto const& b_words) {
///       a_words.begin_load(group, a_tile, first_row, first_column);    // the widest words that both have
///       b_words.begin_load(group, b_tile, first_row, first_column);
///     });                                                              // false: nothing was called
#pragma once

#include <cstdint>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
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

/// A TileSource whose matrix may have words that are copied asynchronously.
template <class S>
concept SourceOfWords =
    TileSource<S> &&
    (requires(S const& s) {
       static_cast<bool>(s.template has_words<4>());
       s.template in_words<4>().rows();
     } || because<"a SourceOfWords has template <int Bytes> has_words() const: whether rows are words of 4 or 8 bytes, "
                  "and in_words() const: an AsyncSource of the same rows">);
// clang-format on

/// Calls use(a in words, b in words) with the widest words that both have. Returns whether they have any.
template <SourceOfWords A, SourceOfWords B, class Use>
[[nodiscard]] TESSERA_FN bool with_words(A const& a, B const& b, Use const& use) {
  if (a.template has_words<8>() && b.template has_words<8>()) {
    use(a.template in_words<8>(), b.template in_words<8>());
    return true;
  }
  if (a.template has_words<4>() && b.template has_words<4>()) {
    use(a.template in_words<4>(), b.template in_words<4>());
    return true;
  }
  return false;
}

}  // namespace v0
}  // namespace tessera
