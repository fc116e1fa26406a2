// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// A matrix with rows one after the other.
template <class T>
struct plain_matrix {
  std::int64_t rows;
  std::int64_t columns;
  std::vector<T> values;

  plain_matrix(std::int64_t of_rows, std::int64_t of_columns, double value = 0.0)
      : rows(of_rows), columns(of_columns), values(static_cast<std::size_t>(rows * columns), static_cast<T>(value)) {}
  T& operator()(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  matrix_view<T> view() { return {values.data(), {rows, columns}}; }
  void fill(std::uint64_t seed) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<T>(testing::gauss{}.value(seed, i));
    }
  }
};

/// A^T A + 0.1 of a matrix with more rows than columns: symmetric and positive.
plain_matrix<double> positive_matrix(std::int64_t n, std::uint64_t seed) {
  plain_matrix<double> a(n + 3, n);
  a.fill(seed);
  plain_matrix<double> made(n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      made(i, j) = i == j ? 0.1 : 0.0;
      for (std::int64_t k = 0; k < n + 3; ++k) {
        made(i, j) += a(k, i) * a(k, j);
      }
    }
  }
  return made;
}

template <class Executor>
double worst_product_of_gram(Executor const& exec, std::int64_t width, std::int64_t columns, float shift) {
  plain_matrix<float> gram(width, width);
  plain_matrix<float> from(width, columns);
  plain_matrix<float> to(width, columns, -777.0);
  gram.fill(1);
  from.fill(2);
  std::vector<subspace_measures> const measures{{1.0, 0.0, shift}};
  array_view<subspace_measures const> known;
  if (shift != 0.0F) {
    known = measures;
  }
  multiply_gram const program{gram.view(), known, from.view(), to.view()};
  exec.run(program, program.groups());
  double worst = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t k = 0; k < columns; ++k) {
      double expected = static_cast<double>(shift) * static_cast<double>(from(i, k));
      for (std::int64_t j = 0; j < width; ++j) {
        expected += static_cast<double>(gram(i, j)) * static_cast<double>(from(j, k));
      }
      worst = std::fmax(worst, std::fabs(expected - static_cast<double>(to(i, k))) / (1.0 + std::fabs(expected)));
    }
  }
  return worst;
}

/// Cholesky's factor R of a matrix, and X R^-1: the worst element of R^T R - matrix, and of Y R - X.
template <class Executor>
double worst_of_factor(Executor const& exec, std::int64_t n) {
  plain_matrix<double> const products = positive_matrix(n, 3);
  plain_matrix<double> factor = products;
  exec.run(factor_products{factor.view()}, 1);
  double worst = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = i; j < n; ++j) {
      double sum = -products.values[static_cast<std::size_t>(i * n + j)];
      for (std::int64_t k = 0; k <= i; ++k) {
        sum += factor(k, i) * factor(k, j);
      }
      worst = std::fmax(worst, std::fabs(sum));
    }
  }
  plain_matrix<float> source(37, n);
  plain_matrix<float> target(37, n, -777.0);
  source.fill(4);
  solve_rows const solve{factor.view(), source.view(), target.view()};
  exec.run(solve, solve.groups());
  for (std::int64_t row = 0; row < 37; ++row) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = -static_cast<double>(source(row, j));
      double size = std::fabs(sum);
      for (std::int64_t k = 0; k <= j; ++k) {
        sum += static_cast<double>(target(row, k)) * factor(k, j);
        size += std::fabs(static_cast<double>(target(row, k)) * factor(k, j));
      }
      worst = std::fmax(worst, std::fabs(sum) / size * 1e-5);  // rounded to fp32: 1e-7 counts as 1e-12
    }
  }
  return worst;
}

/// Eigenvalues and vectors: the worst element of V M V^T - D and of V V^T - 1.
template <class Executor>
double worst_of_diagonal(Executor const& exec, std::int64_t n) {
  plain_matrix<double> const given = positive_matrix(n, 5);
  plain_matrix<double> matrix = given;
  plain_matrix<double> vectors(n, n, -777.0);
  exec.run(diagonalize{matrix.view(), vectors.view()}, 1);
  double worst = 0;
  for (std::int64_t a = 0; a < n; ++a) {
    for (std::int64_t b = 0; b < n; ++b) {
      double product = a == b ? -1.0 : 0.0;
      double found = a == b ? -matrix(a, a) : 0.0;
      for (std::int64_t i = 0; i < n; ++i) {
        product += vectors(a, i) * vectors(b, i);
        for (std::int64_t j = 0; j < n; ++j) {
          found += vectors(a, i) * given.values[static_cast<std::size_t>(i * n + j)] * vectors(b, j);
        }
      }
      worst = std::fmax(worst, std::fmax(std::fabs(product), std::fabs(found)));
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("iteration begins with a shift for the trace, and with the unit matrix where all directions fit",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  plain_matrix<float> gram(40, 40);
  gram.fill(6);
  double trace = 0;
  for (std::int64_t i = 0; i < 40; ++i) {
    gram(i, i) = 3.0F + static_cast<float>(i);
    trace += static_cast<double>(gram(i, i));
  }
  std::vector<subspace_measures> measures(1);
  plain_matrix<float> some(40, 7, -777.0);
  start_subspace const few{gram.view(), some.view(), measures};
  exec.run(few, few.groups());
  CHECK(measures[0].trace == trace);
  CHECK(measures[0].held == 0.0);
  CHECK(measures[0].shift == Approx(trace * 1e-6));
  int different = 0;
  for (std::size_t i = 0; i < some.values.size(); ++i) {
    CHECK(std::fabs(some.values[i]) <= 1.0F);
    different += some.values[i] != some.values[(i + 1) % some.values.size()] ? 1 : 0;
  }
  CHECK(different == 280);
  plain_matrix<float> all(40, 40, -777.0);
  start_subspace const whole{gram.view(), all.view(), measures};
  exec.run(whole, whole.groups());
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t k = 0; k < 40; ++k) {
      CHECK(all(i, k) == (i == k ? 1.0F : 0.0F));
    }
  }
  plain_matrix<float> zeros(3, 3);
  plain_matrix<float> one(3, 1);
  start_subspace const of_zeros{zeros.view(), one.view(), measures};
  exec.run(of_zeros, of_zeros.groups());
  CHECK(measures[0].shift == 1.0F);
}

TEST_CASE("products with gram and of columns are those of a loop in double", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const width : {1, 7, 64, 65}) {
    for (std::int64_t const columns : {1, 63, 64, 65}) {
      CAPTURE(width, columns);
      CHECK(worst_product_of_gram(exec, width, columns, 0.0F) < 1e-7);
      CHECK(worst_product_of_gram(exec, width, columns, 2.5F) < 1e-7);
      plain_matrix<float> first(width, 5);
      plain_matrix<float> second(width, columns);
      plain_matrix<double> products(5, columns, -777.0);
      first.fill(7);
      second.fill(8);
      inner_products const program{first.view(), second.view(), products.view()};
      exec.run(program, program.groups());
      double worst = 0;
      for (std::int64_t a = 0; a < 5; ++a) {
        for (std::int64_t b = 0; b < columns; ++b) {
          double sum = -products(a, b);
          for (std::int64_t i = 0; i < width; ++i) {
            sum += static_cast<double>(first(i, a)) * static_cast<double>(second(i, b));
          }
          worst = std::fmax(worst, std::fabs(sum));
        }
      }
      CHECK(worst < 1e-12);
    }
  }
}

TEST_CASE("a factor of products gives them back, and rows are solved by it", "[host][threads]") {
  for (std::int64_t const n : {1, 2, 7, 31, 32, 33}) {
    CAPTURE(n);
    CHECK(worst_of_factor(cpu{.threads = 2}, n) < 1e-11);
  }
}

TEST_CASE("a symmetric matrix is diagonal in its eigenvectors", "[host][threads]") {
  for (std::int64_t const n : {1, 2, 3, 8, 21}) {
    CAPTURE(n);
    CHECK(worst_of_diagonal(cpu{.threads = 2}, n) < 1e-9);
  }
}

TEST_CASE("the best directions are those of the largest values, of equal ones the first", "[host][threads]") {
  cpu const exec{.threads = 2};
  std::vector<double> const diagonal{2.0, 9.0, 2.0, 7.0, 9.0, 1.0};
  plain_matrix<double> values(6, 6, 50.0);
  for (std::int64_t i = 0; i < 6; ++i) {
    values(i, i) = diagonal[static_cast<std::size_t>(i)];
  }
  std::vector<std::int32_t> order(4, -9);
  std::vector<subspace_measures> measures(1);
  exec.run(order_values{values.view(), order, measures}, 1);
  CHECK(order == std::vector<std::int32_t>{1, 4, 3, 0});
  CHECK(measures[0].held == 27.0);
  plain_matrix<float> columns(70, 6);
  plain_matrix<double> vectors(6, 6);
  plain_matrix<float> directions(70, 4, -777.0);
  columns.fill(9);
  vectors.fill(10);
  write_directions<float> const write{columns.view(), vectors.view(), order, directions.view()};
  exec.run(write, write.groups());
  double worst = 0;
  for (std::int64_t i = 0; i < 70; ++i) {
    for (std::int64_t k = 0; k < 4; ++k) {
      double sum = -static_cast<double>(directions(i, k));
      for (std::int64_t j = 0; j < 6; ++j) {
        sum += static_cast<double>(columns(i, j)) * vectors(order[static_cast<std::size_t>(k)], j);
      }
      worst = std::fmax(worst, std::fabs(sum));
    }
  }
  CHECK(worst < 1e-6);
}

TEST_CASE("programs of iteration keep the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 16};
  CHECK(worst_product_of_gram(exec, 9, 66, 1.5F) < 1e-7);
  CHECK(worst_of_factor(exec, 9) < 1e-11);
  CHECK(worst_of_diagonal(exec, 6) < 1e-9);
}
