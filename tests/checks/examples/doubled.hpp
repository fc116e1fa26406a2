// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The example of a Program, which examples of executors run: concepts.hpp, exec_cuda.hpp.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/view/array_view.hpp>

namespace pieces {

/// Doubles numbers in place.
struct doubled {
  static constexpr int lanes = 32;
  struct scratch_type {};
  tessera::array_view<float> values;

  template <tessera::Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      values[which * lanes + lane] *= 2.0F;
    }
  }
};

}  // namespace pieces
