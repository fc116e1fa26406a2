// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The sum of the values pushed.
///
///     tessera::sum_reducer<double> reducer;
///     auto total = reducer.identity();
///     reducer.push(total, 1.5);                       // total == 1.5
#pragma once

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Adds in `T`, in the order of the calls: exact for integers, rounded at each step for floats.
template <class T>
struct sum_reducer {
  using state_type = T;
  using input_type = T;

  TESSERA_FN constexpr state_type identity() const { return T{}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const { state = static_cast<T>(state + value); }
  TESSERA_FN constexpr void merge(state_type& into, state_type other) const { into = static_cast<T>(into + other); }
};

static_assert(Reducer<sum_reducer<float>>);

}  // namespace v0
}  // namespace tessera
