// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The mean of the values pushed.
///
///     tessera::mean_reducer<float> reducer;
///     auto state = reducer.identity();
///     reducer.push(state, 1.0F);
///     reducer.push(state, 2.0F);
///     float const mean = reducer.value(state);        // 1.5
#pragma once

#include <cstdint>

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The sum and the number of the values that a mean_reducer was given.
template <class T>
struct counted_sum {
  T sum;               ///< sum of the values
  std::int64_t count;  ///< number of the values
};

/// Keeps the sum and the count, so that pieces of different lengths merge with the right weights.
template <class T>
struct mean_reducer {
  using state_type = counted_sum<T>;
  using input_type = T;

  TESSERA_FN constexpr state_type identity() const { return {T{}, 0}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    state.sum += value;
    ++state.count;
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    into.sum += other.sum;
    into.count += other.count;
  }
  /// The mean; zero if no value was pushed.
  TESSERA_FN constexpr T value(state_type const& state) const {
    return state.count == 0 ? T{} : state.sum / static_cast<T>(state.count);
  }
};

static_assert(Reducer<mean_reducer<float>>);

}  // namespace v0
}  // namespace tessera
