// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Rows of stored matrices as vectors of doubles, their lengths and how far apart they are.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/precision.hpp>

#include "support/attention_reference.hpp"

namespace tessera_test {

inline std::vector<double> row_of(std::vector<float> const& all, std::int64_t row, std::int64_t channels) {
  std::vector<double> values;
  for (std::int64_t c = 0; c < channels; ++c) {
    values.push_back(all[as_size(row * channels + c)]);
  }
  return values;
}

template <class T>
std::vector<float> as_floats(std::vector<T> const& stored) {
  std::vector<float> values;
  for (T const& value : stored) {
    values.push_back(tessera::load(value));
  }
  return values;
}

inline double norm_of(std::vector<double> const& v) {
  double square = 0;
  for (double x : v) {
    square += x * x;
  }
  return std::sqrt(square);
}

/// The relative error |found - expected| / |expected|.
inline double relative_error(std::vector<double> const& found, std::vector<double> const& expected) {
  std::vector<double> apart;
  for (std::size_t i = 0; i < found.size(); ++i) {
    apart.push_back(found[i] - expected[i]);
  }
  return norm_of(apart) / norm_of(expected);
}
template <class T>
double relative_error(std::vector<T> const& found, std::vector<double> const& expected) {
  return relative_error(std::vector<double>(found.begin(), found.end()), expected);
}

}  // namespace tessera_test
