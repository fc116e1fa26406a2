// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Two reducers over the same values, in one pass; either may itself be a pair.
///
///     using statistics = paired_reducer<lse_reducer<float>, arg_max_reducer<float>>;
///     statistics reducer;
///     auto state = reducer.identity();
///     reducer.push(state, {score, column});             // those that do not ask for the index get the value alone
///     int const best = state_of<arg_max_reducer<float>>(reducer, state).index;
#pragma once

#include <type_traits>

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/reduce/arg_max.hpp>

namespace tessera {
inline namespace v0 {

/// Pushes a value and its index into a reducer of indexed values, or the value alone into any other reducer.
template <class R, class T>
TESSERA_FN constexpr void push_indexed(R const& reducer, typename R::state_type& state, indexed_value<T> const& value) {
  if constexpr (std::is_same_v<typename R::input_type, indexed_value<T>>) {
    reducer.push(state, value);
  } else {
    reducer.push(state, value.value);
  }
}

/// Both reducers see every value; each has its own state.
template <Reducer First, Reducer Second>
struct paired_reducer {
  /// The states of both.
  struct state_type {
    typename First::state_type first;    ///< the state of `First`
    typename Second::state_type second;  ///< the state of `Second`
  };
  using input_type = indexed_value<float>;
  /// The first reducer.
  using first_type = First;
  /// The second reducer.
  using second_type = Second;

  TESSERA_FN constexpr state_type identity() const { return {First{}.identity(), Second{}.identity()}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    push_indexed(First{}, state.first, value);
    push_indexed(Second{}, state.second, value);
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    First{}.merge(into.first, other.first);
    Second{}.merge(into.second, other.second);
  }
};

/// Whether a reducer is `Wanted` or has it as a part.
template <class Wanted, class R>
inline constexpr bool has_reducer = std::is_same_v<Wanted, R>;
/// For a pair: whether it is `Wanted`, or either part is `Wanted` or has it.
template <class Wanted, class First, class Second>
inline constexpr bool has_reducer<Wanted, paired_reducer<First, Second>> =
    std::is_same_v<Wanted, paired_reducer<First, Second>> || has_reducer<Wanted, First> || has_reducer<Wanted, Second>;

/// The state of the part `Wanted`.
template <class Wanted, class R>
requires has_reducer<Wanted, R> TESSERA_FN constexpr typename Wanted::state_type const& state_of(
    R const&, typename R::state_type const& state) {
  if constexpr (std::is_same_v<Wanted, R>) {
    return state;
  } else if constexpr (has_reducer<Wanted, typename R::first_type>) {
    return state_of<Wanted>(typename R::first_type{}, state.first);
  } else {
    return state_of<Wanted>(typename R::second_type{}, state.second);
  }
}

static_assert(Reducer<paired_reducer<arg_max_reducer<float>, arg_max_reducer<float>>>);

}  // namespace v0
}  // namespace tessera
