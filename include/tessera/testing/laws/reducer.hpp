// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a Reducer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <tessera/concepts/reducer.hpp>
#include <tessera/testing/laws/law_report.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

/// Compares states with ==, where nothing else is said.
struct equal_states {
  /// Whether the states are equal.
  template <class State>
  bool operator()(State const& a, State const& b) const {
    return a == b;
  }
};

namespace detail {

template <Reducer R>
typename R::state_type reduce_piece(R const& reducer, std::vector<typename R::input_type> const& inputs,
                                    std::size_t first, std::size_t last) {
  auto state = reducer.identity();
  for (std::size_t i = first; i < last; ++i) {
    reducer.push(state, inputs[i]);
  }
  return state;
}

template <Reducer R>
typename R::state_type merged(R const& reducer, typename R::state_type into, typename R::state_type const& other) {
  reducer.merge(into, other);
  return into;
}

inline std::string at(std::size_t index) {
  return "at input " + std::to_string(index);
}

}  // namespace detail

/// Checks R on the states that arise from `inputs`: from no input, from one input, and from every beginning and end of
/// the sequence. `same(a, b)` says whether two states mean the same; give one with a tolerance where arithmetic rounds.
template <Reducer R, class Same = equal_states>
law_report check_laws(std::vector<typename R::input_type> const& inputs, Same same = {}, R const& reducer = {}) {
  law_report report;
  std::size_t const count = inputs.size();
  auto const nothing = reducer.identity();
  auto const whole = detail::reduce_piece(reducer, inputs, 0, count);
  report.expect(same(detail::merged(reducer, nothing, nothing), nothing), "identity merged with itself stays identity");
  for (std::size_t i = 0; i < count; ++i) {
    auto const before = detail::reduce_piece(reducer, inputs, 0, i);
    auto const one = detail::reduce_piece(reducer, inputs, i, i + 1);
    auto const after = detail::reduce_piece(reducer, inputs, i + 1, count);
    auto pushed = before;
    reducer.push(pushed, inputs[i]);
    for (auto const& state : {before, one, after}) {
      report.expect(same(detail::merged(reducer, nothing, state), state), "identity on the left changes nothing",
                    detail::at(i));
      report.expect(same(detail::merged(reducer, state, nothing), state), "identity on the right changes nothing",
                    detail::at(i));
    }
    report.expect(same(pushed, detail::merged(reducer, before, one)), "push is merge with the state of one input",
                  detail::at(i));
    auto const left_first = detail::merged(reducer, detail::merged(reducer, before, one), after);
    auto const right_first = detail::merged(reducer, before, detail::merged(reducer, one, after));
    report.expect(same(left_first, right_first), "merge is associative", detail::at(i));
    report.expect(same(detail::merged(reducer, before, after), detail::merged(reducer, after, before)),
                  "merge commutes", detail::at(i));
    report.expect(same(detail::merged(reducer, pushed, after), whole), "two pieces merge to the whole", detail::at(i));
    if constexpr (PairReducer<R>) {
      auto const& other = inputs[(i + 1) % count];
      auto two = one;
      reducer.push(two, other);
      report.expect(same(detail::merged(reducer, nothing, reducer.of_pair(inputs[i], other)), two),
                    "of_pair is the state of two values", detail::at(i));
      auto by_pair = before;
      reducer.push_pair(by_pair, inputs[i], other);
      report.expect(same(by_pair, detail::merged(reducer, before, two)), "push_pair pushes two values", detail::at(i));
    }
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
