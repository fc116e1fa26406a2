// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The largest magnitude of the values pushed, or NaN if any of them was infinite or NaN: the range of a group whose
/// codes must not hide such values.
///
///     tessera::absolute_maximum_or_nan_reducer reducer;
///     auto state = reducer.identity();
///     for (float value : {3.0F, -4.0F}) { reducer.push(state, value); }
///     float const largest = reducer.value(state);                              // 4
#pragma once

#include <cstdint>

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

/// The state is the bits of the largest magnitude. They order as magnitudes do, with infinities and NaNs above all
/// numbers, so merging is the maximum of integers. The result is exact in any order.
struct absolute_maximum_or_nan_reducer {
  using state_type = std::uint32_t;
  using input_type = float;

  TESSERA_FN constexpr state_type identity() const { return 0; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    merge(state, bit_cast<std::uint32_t>(absolute(value)));
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type other) const { into = max(into, other); }
  /// The largest magnitude, or NaN if a value was not finite.
  TESSERA_FN constexpr float value(state_type state) const {
    constexpr std::uint32_t infinite = 0x7f800000U;
    constexpr std::uint32_t not_a_number = 0x7fffffffU;
    return bit_cast<float>(state < infinite ? state : not_a_number);
  }
};

static_assert(Reducer<absolute_maximum_or_nan_reducer>);

}  // namespace v0
}  // namespace tessera
