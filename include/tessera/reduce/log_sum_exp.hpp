// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The logarithm of the sum of exponentials, without overflow: the normaliser of a softmax, found in one pass and in
/// pieces. The pieces of a long attention row, or of a vocabulary, merge to the same value.
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

/// The sum of exp(x) over all x is `scaled` * exp(`largest`).
template <class T>
struct scaled_exponentials {
  T largest;
  T scaled;
};

/// `T` is float or double. The value of nothing, and of nothing but minus infinities, is minus infinity; one plus
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
    into.scaled = into.scaled * relative(into.largest, largest) + other.scaled * relative(other.largest, largest);
    into.largest = largest;
  }

  TESSERA_FN T value(state_type const& state) const {
    if constexpr (std::is_same_v<T, float>) {
      return state.largest + log(state.scaled);
    } else {
      return state.largest + ::log(state.scaled);
    }
  }

 private:
  /// exp(x - largest), where equal infinities count as equal.
  TESSERA_FN static T relative(T x, T largest) {
    if (x == largest) {
      return T{1};
    }
    if constexpr (std::is_same_v<T, float>) {
      return exp(x - largest);
    } else {
      return ::exp(x - largest);
    }
  }
};

static_assert(Reducer<lse_reducer<float>>);

}  // namespace v0
}  // namespace tessera
