// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The entropy of a softmax together with its log-sum-exp, in one pass; partial results can be merged.
///
///     tessera::entropy_reducer<float> reducer;
///     auto state = reducer.identity();
///     for (float score : {0.0F, 0.0F, 0.0F, 0.0F}) { reducer.push(state, score); }
///     float const nats = reducer.entropy(state);        // 1.3863 = log 4
#pragma once

#include <type_traits>

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/log_sum_exp.hpp>

namespace tessera {
inline namespace v0 {

/// The sum of exp(x) is `scaled` * exp(`largest`); the sum of (x - largest) * exp(x) is `weighted` * exp(`largest`).
template <class T>
struct weighted_exponentials {
  T largest;   ///< the largest of the scores
  T scaled;    ///< sum of exp(x - largest)
  T weighted;  ///< sum of (x - largest) * exp(x - largest), 0 or less
};

/// `T` is float or double. The entropy is in nats: log(scaled) - weighted / scaled, which has no large terms that
/// cancel. Minus infinities add nothing. The entropy is NaN if no other score was pushed, or if a plus infinity or a
/// NaN was.
template <class T>
struct entropy_reducer {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                "tessera: entropy_reducer takes float or double");

  using state_type = weighted_exponentials<T>;
  using input_type = T;

  TESSERA_FN constexpr state_type identity() const { return {-static_cast<T>(infinity), T{0}, T{0}}; }

  TESSERA_FN void push(state_type& state, input_type value) const { merge(state, {value, T{1}, T{0}}); }

  TESSERA_FN void merge(state_type& into, state_type const& other) const {
    T const largest = into.largest < other.largest ? other.largest : into.largest;
    state_type const a = moved(into, largest);
    state_type const b = moved(other, largest);
    into = {largest, a.scaled + b.scaled, a.weighted + b.weighted};
  }

  /// The log-sum-exp, the same as lse_reducer's.
  TESSERA_FN T value(state_type const& state) const { return lse_reducer<T>{}.value({state.largest, state.scaled}); }

  /// The entropy in nats; NaN for a row without a finite score.
  TESSERA_FN T entropy(state_type const& state) const {
    return value(state) - state.largest - state.weighted / state.scaled;
  }

 private:
  /// The sums relative to another largest value.
  TESSERA_FN static state_type moved(state_type const& state, T largest) {
    if (state.largest == largest) {
      return state;
    }
    T const distance = state.largest - largest;
    T const factor = exponential(distance);
    T const weighted = factor == T{0} ? T{0} : factor * (state.weighted + distance * state.scaled);
    return {largest, factor * state.scaled, weighted};
  }
  TESSERA_FN static T exponential(T x) {
    if constexpr (std::is_same_v<T, float>) {
      return exp(x);
    } else {
      return ::exp(x);
    }
  }
};

static_assert(Reducer<entropy_reducer<float>>);

}  // namespace v0
}  // namespace tessera
