// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Eigenvalues and eigenvectors of a symmetric matrix, by Jacobi's rotations, in double on the host.
///
///     auto const eigen = tessera::detail::decompose_symmetric({2, 1, 1, 2}, 2);
///     // eigen.values == {3, 1}; eigen.vectors == {s, s, s, -s} with s = sqrt(1/2), one vector after the other
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Eigenvalues in falling order; vector k begins at `vectors[k * n]`, of length one, with its largest element positive.
struct symmetric_eigen {
  std::vector<double> values;
  std::vector<double> vectors;
};

/// A matrix that rotations make diagonal, and the product of these rotations.
class jacobi_rotations {
 public:
  jacobi_rotations(std::vector<double> matrix, int size) : n_(static_cast<std::size_t>(size)), a_(std::move(matrix)) {
    v_.resize(n_ * n_);
    for (std::size_t i = 0; i < n_; ++i) {
      v_[i * n_ + i] = 1.0;
    }
  }

  /// Rotates until the rest beside the diagonal is negligible. Convergence is quadratic, so a few sweeps are enough.
  void run() {
    constexpr int most_sweeps = 60;
    for (int sweep = 0; sweep < most_sweeps && beside_diagonal() > 1e-30 * whole(); ++sweep) {
      for (std::size_t p = 0; p + 1 < n_; ++p) {
        for (std::size_t q = p + 1; q < n_; ++q) {
          rotate(p, q);
        }
      }
    }
  }

  [[nodiscard]] double value(std::size_t k) const { return a_[k * n_ + k]; }
  [[nodiscard]] double const* vector(std::size_t k) const { return &v_[k * n_]; }

 private:
  [[nodiscard]] double whole() const { return std::inner_product(a_.begin(), a_.end(), a_.begin(), 0.0); }
  [[nodiscard]] double beside_diagonal() const {
    double sum = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        sum += 2 * a_[i * n_ + j] * a_[i * n_ + j];
      }
    }
    return sum;
  }

  /// Makes the element (p, q) zero.
  void rotate(std::size_t p, std::size_t q) {
    double const apq = a_[p * n_ + q];
    if (apq == 0.0) {
      return;
    }
    double const ratio = (value(q) - value(p)) / (2 * apq);
    double const tangent = (ratio < 0 ? -1.0 : 1.0) / (std::fabs(ratio) + std::hypot(1.0, ratio));
    double const cosine = 1.0 / std::hypot(1.0, tangent);
    double const sine = tangent * cosine;
    for (std::size_t i = 0; i < n_; ++i) {  // columns
      turn(a_[i * n_ + p], a_[i * n_ + q], cosine, sine);
    }
    for (std::size_t i = 0; i < n_; ++i) {  // rows
      turn(a_[p * n_ + i], a_[q * n_ + i], cosine, sine);
      turn(v_[p * n_ + i], v_[q * n_ + i], cosine, sine);
    }
  }

  static void turn(double& first, double& second, double cosine, double sine) {
    double const before = first;
    first = cosine * before - sine * second;
    second = sine * before + cosine * second;
  }

  std::size_t n_;
  std::vector<double> a_;
  std::vector<double> v_;
};

/// `matrix` holds size * size elements, row after row, and is symmetric.
inline symmetric_eigen decompose_symmetric(std::vector<double> matrix, int size) {
  jacobi_rotations rotations(std::move(matrix), size);
  rotations.run();
  std::vector<std::size_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&rotations](std::size_t a, std::size_t b) { return rotations.value(a) > rotations.value(b); });
  symmetric_eigen result;
  for (std::size_t k : order) {
    double const* begin = rotations.vector(k);
    double const* largest =
        std::max_element(begin, begin + size, [](double a, double b) { return std::fabs(a) < std::fabs(b); });
    double const sign = *largest < 0 ? -1.0 : 1.0;
    result.values.push_back(rotations.value(k));
    for (int i = 0; i < size; ++i) {
      result.vectors.push_back(sign * begin[i]);
    }
  }
  return result;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
