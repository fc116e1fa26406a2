// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Merger: makes one vector out of two, and keeps beside it what it takes to restore either.
///
/// A measure of the pair (a Reducer over their elements) decides everything: the two weights of the mixture, and what
/// is kept for restoring. So merging is one reduction and one weighted sum, whatever the rule is.
///
///     tessera::slerp_merger<float> merger{.share = 0.6F};
///     auto measured = merger.measure().identity();
///     for (i = 0; i < n; ++i) { merger.measure().push(measured, {a[i], b[i]}); }
///     auto const weights = merger.mix(measured);
///     for (i = 0; i < n; ++i) { merged[i] = weights.first * a[i] + weights.second * b[i]; }
///     auto const kept = merger.keep(measured);
///     float const again = merger.restore(merged[0], kept, tessera::side::second);   // close to b[0]
///
/// Laws, checked by `tessera::testing::check_laws<M>(pairs of vectors, tolerance)`:
///   1. measure() is a lawful Reducer.
///   2. Two equal vectors restore to themselves, on both sides.
///   3. A vector of zeros restores to zeros exactly, whatever its partner is.
///   4. Finite vectors restore to finite ones; opposite and equal ones and vectors of zeros are no exception.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/concepts/because.hpp>
#include <tessera/concepts/reducer.hpp>

namespace tessera {
inline namespace v0 {

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

/// The Reducer that measures a pair for a Merger, and its state.
template <class M>
using measure_reducer_t = std::remove_cvref_t<decltype(std::declval<M const&>().measure())>;

/// The state of a Merger's measuring Reducer.
template <class M>
using measured_t = typename measure_reducer_t<M>::state_type;

// clang-format off
template <class M>
concept Merger =
    (requires(M const& m) {
       requires Reducer<measure_reducer_t<M>>;
       requires std::is_same_v<typename measure_reducer_t<M>::input_type, couple>;
     } || because<"a Merger has measure() const, a Reducer whose input_type is tessera::couple">) &&
    (requires(M const& m, measured_t<M> const& measured) {
       requires std::is_same_v<decltype(m.mix(measured)), mix_weights>;
     } || because<"a Merger has mix(): tessera::mix_weights mix(measured state) const">) &&
    (requires { requires std::is_trivially_copyable_v<typename M::kept_type>; }
        || because<"a Merger names what it stores beside the merged vector: a trivially copyable kept_type">) &&
    (requires(M const& m, measured_t<M> const& measured) {
       requires std::is_same_v<decltype(m.keep(measured)), typename M::kept_type>;
     } || because<"a Merger has keep(): kept_type keep(measured state) const">) &&
    (requires(M const& m, float merged, typename M::kept_type const& kept, side which) {
       requires std::is_same_v<decltype(m.restore(merged, kept, which)), float>;
     } || because<"a Merger has restore(): float restore(float merged, kept_type, tessera::side) const">);
// clang-format on

}  // namespace v0
}  // namespace tessera
