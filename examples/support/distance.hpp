// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures how far vectors lie from the expected ones.
#pragma once

#include <cmath>

namespace tessera_examples {

/// The distance of two vectors, whose elements are added one by one.
class distance {
 public:
  void add(double found, double expected) {
    apart_ += (found - expected) * (found - expected);
    product_ += found * expected;
    found_square_ += found * found;
    expected_square_ += expected * expected;
  }
  /// The length of the difference, relative to the length of the expected vector.
  [[nodiscard]] double relative() const { return std::sqrt(apart_ / expected_square_); }
  [[nodiscard]] double cosine() const { return product_ / std::sqrt(found_square_ * expected_square_); }

 private:
  double apart_ = 0;
  double product_ = 0;
  double found_square_ = 0;
  double expected_square_ = 0;
};

}  // namespace tessera_examples
