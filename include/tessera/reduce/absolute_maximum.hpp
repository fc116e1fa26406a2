// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The largest magnitude of the values pushed: the range of a symmetric quantizer, the normalizer of a block of
/// weights.
///
///     tessera::absolute_maximum_reducer<float> reducer;
///     auto largest = reducer.identity();
///     for (float value : {3.0F, -4.0F}) { reducer.push(largest, value); }      // largest == 4
#pragma once

#include <type_traits>

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Exact in any order; never negative, and zero if no value was pushed. NaNs are passed over.
template <class T>
struct absolute_maximum_reducer {
  static_assert(std::is_floating_point_v<T>,
                "tessera: absolute_maximum_reducer takes float or double, because the "
                "smallest integer has no positive counterpart");
  using state_type = T;
  using input_type = T;

  TESSERA_FN constexpr state_type identity() const { return T{}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    merge(state, value < T{} ? -value : value);
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type other) const { into = into < other ? other : into; }
};

static_assert(Reducer<absolute_maximum_reducer<float>>);

}  // namespace v0
}  // namespace tessera
