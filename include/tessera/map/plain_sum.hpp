// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `plain_sum`: the map that does not change sums (concepts/sum_map.hpp).
#pragma once

#include <cstdint>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The map that does not change sums.
struct plain_sum {
  template <class Sum>
  TESSERA_FN constexpr Sum operator()(Sum sum, std::int64_t, std::int64_t) const {
    return sum;
  }
};
static_assert(SumMap<plain_sum>);

}  // namespace v0
}  // namespace tessera
