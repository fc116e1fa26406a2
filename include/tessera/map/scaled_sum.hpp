// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `scaled_sum`: the map of sums (concepts/sum_map.hpp) that multiplies them by a number.
#pragma once

#include <cstdint>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Multiplies by a number, such as the product of the scales of 8-bit operands with one scale each.
struct scaled_sum {
  float scale;  ///< the factor
  template <class Sum>
  TESSERA_FN constexpr float operator()(Sum sum, std::int64_t, std::int64_t) const {
    return static_cast<float>(sum) * scale;
  }
};
static_assert(SumMap<scaled_sum>);

}  // namespace v0
}  // namespace tessera
