// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Pairs of vectors for tests of mergers, and how far restored vectors are from them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/merger.hpp>
#include <tessera/testing/reference.hpp>

namespace tessera_test {

inline tessera::testing::vector_pair random_pair(std::uint64_t seed, double second_length) {
  tessera::testing::vector_pair pair;
  for (std::uint64_t i = 0; i < 96; ++i) {
    pair.first.push_back(tessera::testing::gauss{}.value(seed, i));
    pair.second.push_back(
        static_cast<float>(second_length * (0.8 * double{pair.first.back()} +
                                            0.6 * static_cast<double>(tessera::testing::gauss{}.value(seed + 1, i)))));
  }
  return pair;
}

/// The distance of two vectors relative to the length of the second one.
inline double error_of(std::vector<float> const& found, std::vector<float> const& expected) {
  double square = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    double const apart = double{found[i]} - double{expected[i]};
    square += apart * apart;
  }
  return std::sqrt(square) / tessera::testing::detail::norm(expected);
}

}  // namespace tessera_test
