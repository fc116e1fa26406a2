// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Merger: makes one vector out of two, and gives the factors that restore either from it.
///
/// The three products of a pair (reduce/pair_products.hpp) determine the result: the two weights of the mixture, and
/// the factor by which the mixture is multiplied to restore each vector. So merging is one reduction and one weighted
/// sum, whatever the rule is. Caches that are compressed across layers (algorithm/paged_cache/cross_layer_cache.hpp)
/// measure the products, code the mixture's direction and store the factors, rounded as their pages have them.
///
///     tessera::slerp_merger<float> merger{.share = 0.6F};
///     tessera::pair_products_reducer const reducer;
///     auto measured = reducer.identity();
///     for (int i = 0; i < n; ++i) { reducer.push(measured, {a[i], b[i]}); }
///     auto const weights = merger.mix(measured);
///     for (int i = 0; i < n; ++i) { merged[i] = weights.first * a[i] + weights.second * b[i]; }
///     float const again = merged[0] * merger.keep(measured).of_side(tessera::side::second);   // close to b[0]
///
///     struct first_direction {                                     // a user's own Merger
///       TESSERA_FN mix_weights mix(pair_products const& measured) const {
///         float const length = tessera::length_of(measured.first);
///         return {length == 0.0F ? 0.0F : 1.0F / length, 0.0F};
///       }
///       TESSERA_FN two_lengths<float> keep(pair_products const& measured) const {
///         return {tessera::length_of(measured.first), tessera::length_of(measured.second)};
///       }
///     };
///     static_assert(tessera::Merger<first_direction>);
///
/// Laws, checked by `tessera::testing::check_laws<M>(pairs of vectors, tolerance)`:
///   1. Two equal vectors restore to themselves, on both sides.
///   2. A vector of zeros restores to zeros exactly, whatever its partner is.
///   3. Finite vectors restore to finite ones; opposite and equal ones and vectors of zeros are no exception.
///   4. Where it says that it keeps single vectors, a vector merged with zeros has a mixture of length 1 and its own
///      length as its factor.
/// A merger that merges no pairs keeps these laws where the second vector is zeros.
///
/// A Merger with options may have void check_options(char const* function) const, which throws value_error for options
/// that it does not take. Caches call it when they are planned or made.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// Declared here, since concepts include no primitives: reduce/pair_products.hpp defines it.
struct pair_products;

/// One element of each vector of a pair.
struct couple {
  float first;   ///< of the first vector
  float second;  ///< of the second vector
};

/// The weights of a mixture: first * (an element of the first vector) + second * (the same element of the second
/// vector).
struct mix_weights {
  float first;   ///< the factor of the first vector
  float second;  ///< the factor of the second vector
};

/// Names a vector of the pair.
enum class side : std::uint8_t { first, second };

// clang-format off
template <class M>
concept Merger =
    (std::is_trivially_copyable_v<M>
        || because<"a Merger is trivially copyable: it travels with programs">) &&
    (requires(M const& m, pair_products const& measured) {
       requires std::is_same_v<decltype(m.mix(measured)), mix_weights>;
     } || because<"a Merger has mix(): tessera::mix_weights mix(tessera::pair_products const&) const">) &&
    (requires(M const& m, pair_products const& measured, side which) {
       requires std::is_same_v<decltype(m.keep(measured).of_side(which)), float>;
     } || because<"a Merger has keep(tessera::pair_products const&) const, with float of_side(tessera::side) const">);
// clang-format on

/// Whether a Merger merges two vectors. It does unless it says `static constexpr bool merges_pairs = false`: then it is
/// for layers that are in no pair.
template <class M>
inline constexpr bool merges_pairs = true;
/// The merger's own answer.
template <class M>
requires requires {
  M::merges_pairs;
}
inline constexpr bool merges_pairs<M> = M::merges_pairs;

/// Whether a Merger keeps a vector that is merged with zeros as its direction, of length 1, and its length, as a layer
/// by itself needs it. It does if it says `static constexpr bool keeps_single_vectors = true`. Where the merger of a
/// cache does not, such layers are kept by no_merger (merge/no_merger.hpp).
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
