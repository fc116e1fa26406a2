// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Sums for tests of maps: 28 of either sign, the last four of which are awkward.
#pragma once

#include <limits>
#include <vector>

namespace tessera_test {

inline std::vector<float> some_sums() {
  std::vector<float> sums;
  for (int i = 0; i < 24; ++i) {
    sums.push_back(static_cast<float>(i) * 0.7F - 8.0F);
  }
  sums.push_back(-std::numeric_limits<float>::infinity());
  sums.push_back(std::numeric_limits<float>::quiet_NaN());
  sums.push_back(-0.0F);
  sums.push_back(1e30F);
  return sums;
}

}  // namespace tessera_test
