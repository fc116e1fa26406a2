// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Reducer: folds any number of values into one state, in pieces that can be merged later.
///
/// It is the most used concept of the library: quantizer ranges, merge measures, selector summaries and the log-sum-exp
/// of an online softmax are all Reducers, so a program that reduces rows works with each of them.
///
///     struct longest {                                       // a user's own Reducer
///       using state_type = int;
///       using input_type = int;
///       TESSERA_FN constexpr state_type identity() const { return 0; }
///       TESSERA_FN constexpr void push(state_type& state, input_type x) const { state = tessera::max(state, x); }
///       TESSERA_FN constexpr void merge(state_type& into, state_type other) const { push(into, other); }
///     };
///     static_assert(tessera::Reducer<longest>);
///
/// Laws, checked by `tessera::testing::check_laws<R>(inputs, same)`:
///   1. identity() is neutral: merging it on either side changes nothing.
///   2. push(s, x) is merge(s, the state of x alone).
///   3. merge is associative, up to the rounding that `same` allows.
///   4. merge commutes, up to that rounding: the lanes of a warp do not merge in the order of their values.
///   5. However a sequence is cut into two pieces, merging them gives the state of the whole.
/// The library merges in a fixed order, so a result is the same each time even where rounding depends on the order.
///
/// PairReducer: a Reducer that also takes two values at a time, which rows of sums in registers give it
/// (concepts/tile_mma.hpp). The largest of a state and two integers is one instruction, for instance, and in a state of
/// two sums one of two additions does not wait for the other.
///   6. of_pair(a, b) is the state of two values alone, and push_pair(s, a, b) pushes both.
/// A Reducer with `static constexpr bool any_order = true` has the same states, to the bit but for the signs of zeros,
/// in whatever order values are pushed and states merged: more than one chain of pushes may make them.
///
/// PartReducer: a Reducer of sums that are relative to a reference, as weighted sums of a softmax are, which can be
/// merged at once (reduce/row_parts.hpp), in three steps: a Reducer finds what the sums of all parts can be relative
/// to; begin() makes an empty whole of that; each part is added by its factor, or sums that lanes added up are set.
///   7. However parts are merged, in order by merge() or at once, it gives the same whole, up to rounding.
///   8. sums_of() and set_sums() are each other's inverse, and adding what sums_reducer adds up is adding the parts.
#pragma once

#include <type_traits>

#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class R>
concept Reducer =
    (requires { requires std::is_trivially_copyable_v<typename R::state_type>; }
        || because<"a Reducer names a trivially copyable state: using state_type = ...;">) &&
    (requires { typename R::input_type; }
        || because<"a Reducer names what it takes in: using input_type = ...;">) &&
    (requires(R const& r) { requires std::is_same_v<decltype(r.identity()), typename R::state_type>; }
        || because<"a Reducer has identity(): state_type identity() const, the state of nothing">) &&
    (requires(R const& r, typename R::state_type& state, typename R::input_type const& value) { r.push(state, value); }
        || because<"a Reducer has push(): void push(state_type& state, input_type value) const">) &&
    (requires(R const& r, typename R::state_type& into, typename R::state_type const& other) { r.merge(into, other); }
        || because<"a Reducer has merge(): void merge(state_type& into, state_type const& other) const">);

/// A Reducer that also takes two values at a time.
template <class R>
concept PairReducer =
    (Reducer<R> || because<"a PairReducer is a Reducer">) &&
    (requires(R const& r, typename R::state_type& state, typename R::input_type const& value) {
       requires std::is_same_v<decltype(r.of_pair(value, value)), typename R::state_type>;
       r.push_pair(state, value, value);
     } || because<"a PairReducer takes two values at a time: state_type of_pair(input_type first, input_type second) "
                  "const, void push_pair(state_type& state, input_type first, input_type second) const">);

/// A Reducer whose states can be merged at once.
template <class R>
concept PartReducer =
    (Reducer<R> || because<"a PartReducer is a Reducer">) &&
    (requires {
       requires Reducer<typename R::reach_reducer>;
       requires std::is_same_v<typename R::reach_reducer::input_type, typename R::state_type>;
       requires Reducer<typename R::sums_reducer>;
     } || because<"a PartReducer names Reducers of what parts are relative to and of their sums: "
                  "reach_reducer, which takes parts, and sums_reducer">) &&
    (requires(R const& r, typename R::state_type& whole, typename R::state_type const& part,
              typename R::reach_reducer::state_type const& reach, typename R::sums_reducer::state_type const& sums) {
       requires std::is_same_v<decltype(r.begin(reach)), typename R::state_type>;
       requires std::is_same_v<decltype(r.factor(part, part)), float>;
       r.add(whole, part, 1.0F);
       requires std::is_same_v<decltype(r.sums_of(part)), typename R::sums_reducer::state_type>;
       r.set_sums(whole, sums);
     } || because<"a PartReducer adds parts by factors: state_type begin(reach) const, "
                  "float factor(part, whole) const, void add(state_type& whole, part, float by) const, "
                  "sums sums_of(part) const, void set_sums(state_type& whole, sums) const">);
// clang-format on

/// Whether a Reducer says that its states are the same in whatever order values are pushed.
template <class R>
inline constexpr bool takes_any_order = false;
/// It says so.
template <class R>
requires requires {
  requires R::any_order;
}
inline constexpr bool takes_any_order<R> = true;

}  // namespace v0
}  // namespace tessera
