// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// CacheMerger: what a compressed cache (algorithm/paged_cache/cross_layer_cache.hpp) asks of the merger of two layers.
///
/// A cache measures the three products of a pair itself. It asks the merger for the two weights of the mixture, whose
/// direction is coded, and for the two factors that restore both vectors from it. Pages restore a vector as the mixture
/// times its factor; so restore() of a Merger is never called, and a factor in another type than float is no use: pages
/// round factors themselves. A merger without a state and one with a share that a user chose work alike.
///
///     struct first_direction {                                     // a user's own CacheMerger
///       TESSERA_FN mix_weights mix(pair_products const& measured) const {
///         float const length = tessera::length_of(measured.first);
///         return {length == 0.0F ? 0.0F : 1.0F / length, 0.0F};
///       }
///       TESSERA_FN two_lengths<float> keep(pair_products const& measured) const {
///         return {tessera::length_of(measured.first), tessera::length_of(measured.second)};
///       }
///     };
///     static_assert(tessera::CacheMerger<first_direction>);
///
/// Laws: finite products have finite weights and factors, and a vector of zeros has the factor 0.
#pragma once

#include <type_traits>

#include <tessera/concepts/because.hpp>
#include <tessera/concepts/merger.hpp>

namespace tessera {
inline namespace v0 {

// Declared here, since concepts include no primitives: reduce/pair_products.hpp and merge/two_lengths.hpp define them.
struct pair_products;
struct pair_products_reducer;
template <class Length>
struct two_lengths;

// clang-format off
template <class M>
concept CacheMerger =
    (std::is_trivially_copyable_v<M>
        || because<"a CacheMerger is trivially copyable: it travels with programs">) &&
    (requires(M const& m, pair_products const& measured) {
       requires std::is_same_v<decltype(m.mix(measured)), mix_weights>;
     } || because<"a CacheMerger has mix(): tessera::mix_weights mix(tessera::pair_products const&) const">) &&
    (requires(M const& m, pair_products const& measured) {
       requires std::is_same_v<decltype(m.keep(measured)), two_lengths<float>>;
     } || because<"a CacheMerger has keep(): tessera::two_lengths<float> keep(tessera::pair_products const&) const">) &&
    (!requires(M const& m) { m.measure(); } || requires {
       requires std::is_same_v<measure_reducer_t<M>, pair_products_reducer>;
     } || because<"a CacheMerger that has measure() measures as a cache does, by tessera::pair_products_reducer">);
// clang-format on

/// Whether a CacheMerger merges two vectors. It does unless it says `static constexpr bool merges_pairs = false`: then
/// it is for layers that are kept by themselves.
template <class M>
inline constexpr bool merges_pairs = true;
/// The merger's own answer.
template <class M>
requires requires {
  M::merges_pairs;
}
inline constexpr bool merges_pairs<M> = M::merges_pairs;

/// Whether a CacheMerger keeps a vector that is merged with zeros as its direction, of length 1, and its length, as a
/// layer by itself needs it. It does if it says `static constexpr bool keeps_single_vectors = true`. Where the merger
/// of a cache does not, such layers are kept by no_merger (merge/no_merger.hpp).
template <class M>
inline constexpr bool keeps_single_vectors = false;
/// The merger's own answer.
template <class M>
requires requires {
  M::keeps_single_vectors;
}
inline constexpr bool keeps_single_vectors<M> = M::keeps_single_vectors;

}  // namespace v0
}  // namespace tessera
