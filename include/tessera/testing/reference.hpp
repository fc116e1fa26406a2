// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Plain reference results: each function is the formula as written, in double, on the host, with no regard for speed.
///
///     double const expected = tessera::testing::reference_log_sum_exp(scores);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace tessera {
inline namespace v0 {
namespace testing {

/// The matrix product a * b, all of them row after row: a is rows x depth, b is depth x columns.
inline std::vector<double> reference_multiply(std::vector<double> const& a, std::vector<double> const& b,
                                              std::size_t rows, std::size_t columns, std::size_t depth) {
  std::vector<double> product(rows * columns);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      for (std::size_t k = 0; k < depth; ++k) {
        product[row * columns + column] += a[row * depth + k] * b[k * columns + column];
      }
    }
  }
  return product;
}

/// The logarithm of the sum of exp(x); minus infinity if there is no x.
inline double reference_log_sum_exp(std::vector<float> const& values) {
  double const infinity = std::numeric_limits<double>::infinity();
  double largest = -infinity;
  for (float value : values) {
    largest = std::max(largest, double{value});
  }
  if (std::isinf(largest)) {
    return largest;
  }
  double sum = 0;
  for (float value : values) {
    sum += std::exp(double{value} - largest);
  }
  return largest + std::log(sum);
}

/// The angle between two vectors of the same length that are not zero, from 0 to pi. The half-angle formula is accurate
/// at both ends.
inline double reference_angle(std::vector<double> const& a, std::vector<double> const& b) {
  double const a_length = std::sqrt(std::inner_product(a.begin(), a.end(), a.begin(), 0.0));
  double const b_length = std::sqrt(std::inner_product(b.begin(), b.end(), b.begin(), 0.0));
  double apart = 0;
  double along = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double const u = a[i] / a_length;
    double const v = b[i] / b_length;
    apart += (u - v) * (u - v);
    along += (u + v) * (u + v);
  }
  return 2 * std::atan2(std::sqrt(apart), std::sqrt(along));
}

/// The indices of the `take` highest scores in ascending order; of equal scores the earlier one is taken. No score is
/// NaN.
inline std::vector<std::int64_t> reference_top_k(std::vector<float> const& scores, std::size_t take) {
  std::vector<std::int64_t> indices(scores.size());
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  std::stable_sort(indices.begin(), indices.end(), [&scores](std::int64_t a, std::int64_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  indices.resize(take);
  std::sort(indices.begin(), indices.end());
  return indices;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
