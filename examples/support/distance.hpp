// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How far vectors lie from what they should be.
#pragma once

#include <cmath>

namespace tessera_examples {

/// Elements are added one by one.
class distance {
 public:
  void add(double found, double expected) {
    apart_ += (found - expected) * (found - expected);
    product_ += found * expected;
    found_square_ += found * found;
    expected_square_ += expected * expected;
  }
  /// Length of the difference, relative to what is expected.
  [[nodiscard]] double relative() const { return std::sqrt(apart_ / expected_square_); }
  [[nodiscard]] double cosine() const { return product_ / std::sqrt(found_square_ * expected_square_); }

 private:
  double apart_ = 0;
  double product_ = 0;
  double found_square_ = 0;
  double expected_square_ = 0;
};

}  // namespace tessera_examples
