// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The largest value.
///
///     tessera::maximum_reducer<float> reducer;
///     auto largest = reducer.identity();          // minus infinity
///     for (float x : values) { reducer.push(largest, x); }
#pragma once

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

/// T: float or double. Minus infinity if nothing was pushed. A NaN does not count: whether it is pushed or not, the
/// largest is that of the others.
template <class T>
struct maximum_reducer {
  using state_type = T;
  using input_type = T;

  TESSERA_FN constexpr state_type identity() const { return -static_cast<T>(infinity); }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const { state = max(state, value); }
  TESSERA_FN constexpr void merge(state_type& into, state_type other) const { into = max(into, other); }
};

static_assert(Reducer<maximum_reducer<float>>);

}  // namespace v0
}  // namespace tessera
