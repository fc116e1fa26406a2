// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ChunkSelector: says which chunks of a cache a query reads. It decides what is kept of a chunk's keys, how a query
/// scores what is kept, and how many chunks are taken.
///
/// Every Selector that names its chunk size and its group of queries is a ChunkSelector: its landmarks are kept channel
/// by channel. Other types choose what they keep of a chunk:
///
///     struct my_selector {
///       static constexpr int chunk = 8;                               // keys
///       using group_type = group_max;              // how query heads agree, without state: select/query_group.hpp
///       using element_type = bfloat16;                                // of what is kept
///       TESSERA_FN std::int64_t elements(std::int64_t channels) const;    // of a chunk
///       TESSERA_FN std::int64_t pieces(std::int64_t channels) const;      // that can be made at the same time
///       template <class Keys>                                         // keys(token, channel), a float
///       TESSERA_FN void reduce(Keys const& keys, std::int64_t piece, std::int64_t channels, element_type* kept) const;
///       template <class Query> // query(channel), a float, scaled
///       TESSERA_FN float score(Query const& query, element_type const* kept, std::int64_t channels,
///                              scored_chunk const& at) const;
///       TESSERA_FN std::int64_t budget(std::int64_t candidates) const;
///     };
///
/// Laws, checked by `tessera::testing::check_chunk_laws<S>(keys, channels, queries)`:
///   1. What is kept depends on the keys of the chunk alone; all of its elements are written, by all pieces together.
///   2. Finite keys and queries have a finite score, and the same ones always have the same score.
///   3. budget(n) is between 0 and n, and never shrinks when n grows.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/selector.hpp>
#include <tessera/config.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

/// Names the chunk, the key head and the query that a score is for.
struct scored_chunk {
  std::int64_t chunk;     ///< index of the chunk in its sequence
  std::int64_t head;      ///< index of the key head
  std::int64_t position;  ///< position of the query in the sequence
};

namespace detail {

struct key_archetype {
  TESSERA_FN float operator()(std::int64_t token, std::int64_t channel) const;
};
struct query_archetype {
  TESSERA_FN float operator()(std::int64_t channel) const;
};

}  // namespace detail

// clang-format off
template <class S>
concept ChunkSelector =
    (requires { requires S::chunk >= 1; typename S::group_type; }
        || because<"a ChunkSelector has static constexpr int chunk = ...; and using group_type = group_max;">) &&
    (requires { requires std::is_empty_v<typename S::group_type>; }
        || because<"the group_type of a ChunkSelector has no state; the selector may have some">) &&
    (requires(S const& s, std::int64_t candidates) {
       requires std::is_same_v<decltype(s.budget(candidates)), std::int64_t>;
     } || because<"a ChunkSelector has budget(): std::int64_t budget(std::int64_t candidates) const">) &&
    (Selector<S> || requires(S const& s, std::int64_t channels) {
       requires std::is_trivially_copyable_v<typename S::element_type>;
       requires std::is_same_v<decltype(s.elements(channels)), std::int64_t>;
       requires std::is_same_v<decltype(s.pieces(channels)), std::int64_t>;
     } || because<"a ChunkSelector is a Selector, or has element_type, elements(channels) and pieces(channels)">) &&
    (Selector<S> || requires(S const& s, detail::key_archetype keys, std::int64_t n, typename S::element_type* kept) {
       s.reduce(keys, n, n, kept);
     } || because<"a ChunkSelector is a Selector, or has reduce(keys, piece, channels, kept)">) &&
    (Selector<S> || requires(S const& s, detail::query_archetype query, typename S::element_type const* kept,
                             std::int64_t channels, scored_chunk const& at) {
       requires std::is_same_v<decltype(s.score(query, kept, channels, at)), float>;
     } || because<"a ChunkSelector is a Selector, or has float score(query, kept, channels, scored_chunk)">);
// clang-format on

}  // namespace v0
}  // namespace tessera
