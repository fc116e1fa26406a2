// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// RowFinish: a function that a loss calls with the state of its Reducer for each row of logits.
///
///     struct keep_largest {                                         // a user's own, for arg_max_reducer<float>
///       array_view<float> largest;                                  // a value for each token
///       TESSERA_FN void operator()(std::int64_t, std::int64_t token, indexed_value<float> const& state) const {
///         largest[token] = state.value;
///       }
///     };
///
/// A finish may have two functions for the host, which calls ask before they enqueue anything: each_view(), which names
/// its views for check_reach_of(), and check_tokens(), for check_finish().
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/refused_call.hpp>
#include <tessera/config.hpp>
#include <tessera/core/because.hpp>
#include <tessera/core/check.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
/// A function that gets the state of each row of logits, from which a user can store results.
template <class F, class State>
concept RowFinish =
    (std::is_trivially_copyable_v<F>
        || because<"a finish of rows is trivially copyable, because programs carry it as bytes">) &&
    (requires(F const& finish, std::int64_t row, std::int64_t token, State const& state) { finish(row, token, state); }
        || because<"a finish of rows is called with the state of the loss's Reducer: "
                   "void operator()(std::int64_t row, std::int64_t token, state_type const& state) const">);
// clang-format on

namespace detail {

template <class State, class... Given>
inline constexpr bool is_workspace_and_finish = false;
template <class State, class Space>
inline constexpr bool is_workspace_and_finish<State, Space> = true;
template <class State, class Space, class Finish>
inline constexpr bool is_workspace_and_finish<State, Space, Finish> = RowFinish<Finish, State>;

}  // namespace detail

/// What a loss takes behind its outputs: a workspace, and perhaps a RowFinish of the states of R.
template <class Workspace, class R, class... Given>
concept IsSpaceAndFinish =
    IsFirst<Workspace, Given...> && detail::is_workspace_and_finish<typename R::state_type, Given...>;

/// Lets a finish refuse a call of so many tokens, so that it writes nothing outside of its views: calls its
/// check_tokens(char const* function, std::int64_t tokens) const, which throws shape_error, if it has one.
template <class F>
inline void check_finish([[maybe_unused]] char const* function, [[maybe_unused]] std::int64_t tokens,
                         [[maybe_unused]] F const& finish) {
  if constexpr (requires { finish.check_tokens(function, tokens); }) {
    finish.check_tokens(function, tokens);
  }
}

/// The finish that keeps nothing of a state.
struct keep_no_state {
  /// Does nothing.
  template <class State>
  TESSERA_FN void operator()(std::int64_t, std::int64_t, State const&) const {}
};

/// The finish that writes the state of each token to memory.
template <class State>
struct keep_states {
  array_view<State> states;  ///< a state for each token

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("states", states);
  }
  /// Throws shape_error unless there is a state for each of so many tokens, value_error where states have no memory.
  void check_tokens(char const* function, std::int64_t tokens) const {
    check<shape_error>(states.size() == tokens, function, ": there are ", states.size(), " states but ", tokens,
                       " tokens");
    check_memory(function, "states", states);
    check_apart(function, "states", states);
  }
  /// Writes the state of a token.
  TESSERA_FN void operator()(std::int64_t, std::int64_t token, State const& state) const { states[token] = state; }
};

}  // namespace v0
}  // namespace tessera
