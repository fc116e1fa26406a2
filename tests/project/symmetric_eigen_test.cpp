// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <vector>

#include <tessera/project/symmetric_eigen.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using tessera::detail::decompose_symmetric;

TEST_CASE("a small matrix has its known eigenvalues and vectors", "[host]") {
  auto const eigen = decompose_symmetric({2, 1, 1, 2}, 2);
  CHECK(eigen.values[0] == Approx(3.0));
  CHECK(eigen.values[1] == Approx(1.0));
  CHECK(eigen.vectors[0] == Approx(std::sqrt(0.5)));
  CHECK(eigen.vectors[1] == Approx(std::sqrt(0.5)));
  CHECK(eigen.vectors[2] == Approx(-eigen.vectors[3]));
}

TEST_CASE("eigenvalues fall, and vectors are orthonormal and solve the equation", "[host]") {
  constexpr std::size_t n = 24;
  std::vector<double> matrix(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      matrix[i * n + j] = matrix[j * n + i] = tessera::testing::gauss().value(3, i * n + j);
    }
  }
  auto const eigen = decompose_symmetric(matrix, static_cast<int>(n));
  for (std::size_t k = 0; k < n; ++k) {
    CHECK((k == 0 || eigen.values[k - 1] >= eigen.values[k]));
    for (std::size_t other = 0; other < n; ++other) {
      double dot = 0;
      double image = 0;
      for (std::size_t i = 0; i < n; ++i) {
        dot += eigen.vectors[k * n + i] * eigen.vectors[other * n + i];
        image += matrix[other * n + i] * eigen.vectors[k * n + i];
      }
      CHECK(std::fabs(dot - (k == other ? 1.0 : 0.0)) < 1e-12);
      CHECK(std::fabs(image - eigen.values[k] * eigen.vectors[k * n + other]) < 1e-11);
    }
  }
}

TEST_CASE("a matrix of zeros has an orthonormal basis too", "[host]") {
  auto const eigen = decompose_symmetric(std::vector<double>(9), 3);
  CHECK(eigen.values == std::vector<double>{0, 0, 0});
  CHECK(eigen.vectors == std::vector<double>{1, 0, 0, 0, 1, 0, 0, 0, 1});
}
