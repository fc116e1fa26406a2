// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The innermost loops of references in double. No templates: inner_functions.cpp has them for all tests, optimised.
#pragma once

#include <cstdint>

namespace tessera_test {

/// The inner product of two rows, by two sums that need not wait for each other.
inline double row_product(double const* a, double const* b, std::int64_t channels) {
  double even = 0;
  double odd = 0;
  for (std::int64_t c = 0; c + 1 < channels; c += 2) {
    even += a[c] * b[c];
    odd += a[c + 1] * b[c + 1];
  }
  return even + odd + (channels % 2 == 0 ? 0.0 : a[channels - 1] * b[channels - 1]);
}

/// Adds a row times `factor` to another.
inline void add_row(double* to, double factor, double const* row, std::int64_t channels) {
  for (std::int64_t c = 0; c < channels; ++c) {
    to[c] += factor * row[c];
  }
}

}  // namespace tessera_test
