// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Sources that need scratch before tiles can be loaded from them, and how programs take sources with and without
/// scratch.
///
///     struct scratch_type {                                                  // of the program
///       source_scratch<S> of_source;
///       ...
///     };
///     ...
///     auto const& source = open_source(group, given, scratch.of_source);    // a TileSource: `given` or what it opens
///
/// A source that needs scratch has value_type, scratch_type, rows(), columns(), and open(group, scratch), which all
/// lanes reach and which gives a TileSource. If only groups of one size can load from it, it has `lanes`.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

/// A source that becomes a TileSource once a group has scratch for it.
// clang-format off
template <class S>
concept ScratchSource =
    (requires {
       requires std::is_trivially_copyable_v<S>;
       requires std::is_trivially_copyable_v<typename S::value_type>;
     }
        || because<"a ScratchSource is trivially copyable and names its elements: using value_type = ...;">) &&
    (requires { requires std::is_trivially_default_constructible_v<typename S::scratch_type>; }
        || because<"a ScratchSource names its shared memory, a trivial type: scratch_type">) &&
    (requires(S const& s) {
       requires std::is_same_v<decltype(s.rows()), std::int64_t>;
       requires std::is_same_v<decltype(s.columns()), std::int64_t>;
     } || because<"a ScratchSource has std::int64_t rows() const and std::int64_t columns() const">) &&
    (requires(S const& s, detail::lone_lane const& group, typename S::scratch_type& scratch) {
       requires TileSource<decltype(s.open(group, scratch))>;
     } || because<"a ScratchSource has open(group, scratch) const, which gives a TileSource">);
// clang-format on

// clang-format off
/// Any matrix that a program can be given.
template <class S>
concept AnySource =
    TileSource<S> || ScratchSource<S>
        || because<"a source of a product is a TileSource, with rows(), columns() and load(group, tile, first_row, "
                   "first_column), or a ScratchSource, with scratch_type and open(group, scratch)">;
// clang-format on

namespace detail {

template <class S>
struct scratch_of_source {
  struct type {};
};
template <ScratchSource S>
struct scratch_of_source<S> {
  using type = typename S::scratch_type;
};

template <class S>
constexpr int lanes_of_source(int otherwise) {
  if constexpr (requires { S::lanes; }) {
    return S::lanes;
  } else {
    return otherwise;
  }
}

}  // namespace detail

/// The scratch of a group that loads from a source: the source's scratch_type, or an empty type.
template <AnySource S>
using source_scratch = typename detail::scratch_of_source<S>::type;

/// Gives the TileSource of a source: the source itself, or what it opens. All lanes reach this call.
template <class G, AnySource S>
TESSERA_FN decltype(auto) open_source(G const& group, S const& source, source_scratch<S>& scratch) {
  if constexpr (ScratchSource<S>) {
    return source.open(group, scratch);
  } else {
    static_cast<void>(group);
    static_cast<void>(scratch);
    return (source);
  }
}

/// The number of lanes of a group that loads from both sources: the number that they ask for, or `otherwise`.
template <AnySource A, AnySource B>
constexpr int lanes_for_sources(int otherwise) {
  constexpr int none = 0;
  constexpr int a = detail::lanes_of_source<A>(none);
  constexpr int b = detail::lanes_of_source<B>(none);
  static_assert(a == none || b == none || a == b, "tessera: these sources ask for groups of different sizes");
  return a != none ? a : b != none ? b : otherwise;
}

}  // namespace v0
}  // namespace tessera
