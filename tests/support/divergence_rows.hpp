// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Rows of logits for the laws of divergences.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>

namespace tessera_test {

/// Rows of 1, 2 and 9 entries would not be of one vocabulary; these have `entries` each: flat, random and peaked ones.
inline std::vector<std::vector<double>> divergence_rows(std::int64_t entries) {
  std::vector<std::vector<double>> rows(5);
  for (std::int64_t j = 0; j < entries; ++j) {
    auto const number = [&](std::uint64_t seed) {
      return static_cast<double>(tessera::testing::gauss{}.value(seed, static_cast<std::uint64_t>(j)));
    };
    rows[0].push_back(3.0);
    rows[1].push_back(number(1));
    rows[2].push_back(4.0 * number(2));
    rows[3].push_back(j == entries / 2 ? 12.0 : number(3));
    rows[4].push_back(-15.0 + 2.0 * number(4));
  }
  return rows;
}

}  // namespace tessera_test
