// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `soft_capped`: the map of sums (concepts/sum_map.hpp) that bends them below a bound by a hyperbolic tangent.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: the global names are those that nvcc has on both sides

#include <tessera/concepts/sum_map.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Bends sums so that they stay below `cap` in magnitude: cap * tanh(sum / cap).
struct soft_capped {
  float cap;  ///< the bound: sums stay between -cap and cap
  template <class Sum>
  TESSERA_FN float operator()(Sum sum, std::int64_t, std::int64_t) const {
    return cap * ::tanhf(static_cast<float>(sum) / cap);
  }
};
static_assert(SumMap<soft_capped>);

}  // namespace v0
}  // namespace tessera
