// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The largest value.
///
///     tessera::maximum_reducer<float> reducer;
///     auto largest = reducer.identity();          // minus infinity
///     for (float x : values) { reducer.push(largest, x); }
#pragma once

#include <limits>
#include <type_traits>

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

/// T: float, double or an integer. Minus infinity, or the least integer, if nothing was pushed. A NaN does not count:
/// whether it is pushed or not, the largest is that of the others.
template <class T>
struct maximum_reducer {
  using state_type = T;
  using input_type = T;
  static constexpr bool any_order = true;  ///< of two zeros either may be the largest

  TESSERA_FN constexpr state_type identity() const { return least; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const { state = larger(state, value); }
  TESSERA_FN constexpr void merge(state_type& into, state_type other) const { into = larger(into, other); }
  /// The larger of two values. For devices it is NaN if both are, which counts as nothing in what it is merged with.
  TESSERA_FN constexpr state_type of_pair(input_type first, input_type second) const {
    return larger(passes_over_both ? first : larger(least, first), second);
  }
  /// Takes two values at a time.
  TESSERA_FN constexpr void push_pair(state_type& state, input_type first, input_type second) const {
    state = larger(larger(state, first), second);
  }

 private:
  using limits = std::numeric_limits<T>;
  static constexpr T least = limits::has_infinity ? -limits::infinity() : limits::lowest();
#if defined(__CUDACC__)  // an instruction of devices passes over a NaN on either side
  static constexpr bool has_instruction = std::is_same_v<T, float>;
#else
  static constexpr bool has_instruction = false;
#endif
  static constexpr bool passes_over_both = has_instruction || std::is_integral_v<T>;

  TESSERA_FN static constexpr T larger(T a, T b) {
    if constexpr (has_instruction) {
      return maximum(a, b);
    } else {
      return max(a, b);
    }
  }
};

static_assert(PairReducer<maximum_reducer<float>>);

}  // namespace v0
}  // namespace tessera
