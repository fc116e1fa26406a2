// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The index of the largest value, or of the first of several equal ones, in whatever order partial results are merged.
///
///     tessera::arg_max_reducer<float> reducer;
///     auto best = reducer.identity();
///     reducer.push(best, {3.5F, 7});                     // best.index == 7
#pragma once

#include <cstdint>

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

/// A value and its index in the sequence.
template <class T>
struct indexed_value {
  T value;             ///< the value to be compared
  std::int32_t index;  ///< not negative; -1 stands for no value
};

/// NaNs never win. If no value was pushed, or NaNs alone, the index is -1.
template <class T>
struct arg_max_reducer {
  using state_type = indexed_value<T>;
  using input_type = indexed_value<T>;

  TESSERA_FN constexpr state_type identity() const { return {-static_cast<T>(infinity), -1}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const { merge(state, value); }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    bool const is_earlier = static_cast<std::uint32_t>(other.index) < static_cast<std::uint32_t>(into.index);
    if (other.value > into.value || (other.value == into.value && is_earlier)) {
      into = other;
    }
  }
};

static_assert(Reducer<arg_max_reducer<float>>);

}  // namespace v0
}  // namespace tessera
