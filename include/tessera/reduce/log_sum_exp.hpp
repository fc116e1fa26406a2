// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The logarithm of the sum of exponentials, without overflow: the normaliser of a softmax, found in one pass; partial
/// results can be merged. The pieces of a long attention row, or of a vocabulary, merge to the same value.
///
///     tessera::lse_reducer<float> reducer;
///     auto state = reducer.identity();
///     for (float score : {1000.0F, 1000.0F}) { reducer.push(state, score); }
///     float const lse = reducer.value(state);          // 1000.6931 = 1000 + log 2
#pragma once

#include <type_traits>

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// Powers of e; binary_power: powers of 2.
struct natural_power {
  TESSERA_FN static float of(float x) { return exp(x); }
  TESSERA_FN static double of(double x) { return ::exp(x); }
};
struct binary_power {
  TESSERA_FN static float of(float x) { return exp2(x); }
  TESSERA_FN static double of(double x) { return ::exp2(x); }
};

/// The power of x - reference; 1 if both are the same infinity.
template <class Power, class T>
TESSERA_FN T relative_power(T x, T reference) {
  return x == reference ? T{1} : Power::of(x - reference);
}

}  // namespace detail

/// The sum of exp(x) over all x is `scaled` * exp(`largest`).
template <class T>
struct scaled_exponentials {
  T largest;  ///< the largest of the values
  T scaled;   ///< sum of exp(x - largest); 0 if no value was pushed
};

/// `T` is float or double. The value is minus infinity if nothing was pushed, or minus infinities alone; one plus
/// infinity makes it plus infinity; a NaN makes it NaN.
template <class T>
struct lse_reducer {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>, "tessera: lse_reducer takes float or double");

  using state_type = scaled_exponentials<T>;
  using input_type = T;

  TESSERA_FN constexpr state_type identity() const { return {-static_cast<T>(infinity), T{0}}; }

  TESSERA_FN void push(state_type& state, input_type value) const { merge(state, {value, T{1}}); }

  TESSERA_FN void merge(state_type& into, state_type const& other) const {
    T const largest = into.largest < other.largest ? other.largest : into.largest;
    using power = detail::natural_power;
    into.scaled = into.scaled * detail::relative_power<power>(into.largest, largest) +
                  other.scaled * detail::relative_power<power>(other.largest, largest);
    into.largest = largest;
  }

  /// The natural logarithm of the sum of exp(x); minus infinity if no value was pushed.
  TESSERA_FN T value(state_type const& state) const {
    if constexpr (std::is_same_v<T, float>) {
      return state.largest + log(state.scaled);
    } else {
      return state.largest + ::log(state.scaled);
    }
  }
};

static_assert(Reducer<lse_reducer<float>>);

}  // namespace v0
}  // namespace tessera
