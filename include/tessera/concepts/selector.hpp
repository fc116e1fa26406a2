// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Selector: says which chunks of a long sequence are read, by scores of one landmark for each chunk.
///
/// A chunk of keys is summarised channel by channel (by a Reducer); the summary becomes a landmark; a query scores a
/// landmark as the sum over channels; the chunks with the best scores are taken, as many as the budget says.
///
///     tessera::landmark_selector<8> selector{.chunks = 256};
///     auto summary = selector.summary().identity();              // one channel of one chunk
///     for (float key : chunk) { selector.summary().push(summary, key); }
///     auto const landmark = selector.landmark(summary);
///     score += selector.score(query, landmark);                   // summed over the channels
///     tessera::top_k(scores, candidates, selector.budget(candidates), taken);
///
/// Laws, checked by `tessera::testing::check_laws<S>(keys, queries, tolerance)`:
///   1. summary() is a lawful Reducer.
///   2. The landmark depends on the keys alone: a chunk summarised in two pieces scores as the whole does.
///   3. Finite keys and queries have a finite score, and the same ones always have the same score.
///   4. budget(n) is between 0 and n, and never shrinks when n grows.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/concepts/reducer.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

/// The Reducer that summarises a chunk for a Selector, and its state.
template <class S>
using summary_reducer_t = std::remove_cvref_t<decltype(std::declval<S const&>().summary())>;

/// The state of a Selector's summary Reducer.
template <class S>
using summary_state_t = typename summary_reducer_t<S>::state_type;

// clang-format off
template <class S>
concept Selector =
    (requires(S const& s) {
       requires Reducer<summary_reducer_t<S>>;
       requires std::is_convertible_v<float, typename summary_reducer_t<S>::input_type>;
     } || because<"a Selector has summary() const, a Reducer that takes in float">) &&
    (requires { requires std::is_trivially_copyable_v<typename S::landmark_type>; }
        || because<"a Selector names what stands for a chunk: using landmark_type = ...; trivially copyable">) &&
    (requires(S const& s, summary_state_t<S> const& summary) {
       requires std::is_same_v<decltype(s.landmark(summary)), typename S::landmark_type>;
     } || because<"a Selector has landmark(): landmark_type landmark(summary state) const">) &&
    (requires(S const& s, float query, typename S::landmark_type const& landmark) {
       requires std::is_same_v<decltype(s.score(query, landmark)), float>;
     } || because<"a Selector has score(): float score(float query, landmark_type) const, for one channel">) &&
    (requires(S const& s, std::int64_t candidates) {
       requires std::is_same_v<decltype(s.budget(candidates)), std::int64_t>;
     } || because<"a Selector has budget(): "
                  "std::int64_t budget(std::int64_t candidates) const, how many of them to take">);
// clang-format on

}  // namespace v0
}  // namespace tessera
