// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The smallest and the largest of the values pushed: the range of an asymmetric quantizer, the box of a chunk of keys.
///
///     tessera::minimum_maximum_reducer<float> reducer;
///     auto range = reducer.identity();
///     for (float value : {3.0F, -1.0F}) { reducer.push(range, value); }
///     // range.minimum == -1, range.maximum == 3
#pragma once

#include <limits>

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The interval from `minimum` to `maximum`; empty while `minimum` is above `maximum`.
template <class T>
struct interval {
  T minimum;  ///< plus infinity if no value was pushed
  T maximum;  ///< minus infinity if no value was pushed
  TESSERA_FN friend constexpr bool operator==(interval const&, interval const&) = default;
};

/// Exact in any order. NaNs are passed over.
template <class T>
struct minimum_maximum_reducer {
  using state_type = interval<T>;
  using input_type = T;

  TESSERA_FN constexpr state_type identity() const { return {highest, lowest}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const { merge(state, {value, value}); }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    into.minimum = other.minimum < into.minimum ? other.minimum : into.minimum;
    into.maximum = into.maximum < other.maximum ? other.maximum : into.maximum;
  }

 private:
  using limits = std::numeric_limits<T>;
  static constexpr T highest = limits::has_infinity ? limits::infinity() : limits::max();
  static constexpr T lowest = limits::has_infinity ? -limits::infinity() : limits::lowest();
};

static_assert(Reducer<minimum_maximum_reducer<float>>);

}  // namespace v0
}  // namespace tessera
