// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/subspace/block_products.hpp>
#include <tessera/program/subspace/factor_blocks.hpp>
#include <tessera/program/subspace/iterate_in_blocks.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

struct columns_problem {
  std::int64_t rows;
  std::int64_t columns;
  std::vector<float> values;
};

/// Columns of which column k is `length(k)` long and is not orthogonal to the first one.
template <class Length>
columns_problem make_columns(std::int64_t rows, std::int64_t columns, Length length) {
  columns_problem made{rows, columns, std::vector<float>(static_cast<std::size_t>(rows * columns))};
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < columns; ++k) {
      auto const at = static_cast<std::size_t>(i * columns + k);
      float const common = testing::gauss().value(1, static_cast<std::uint64_t>(i));
      made.values[at] = static_cast<float>(length(k)) * (testing::gauss().value(2, at) + 0.5F * common);
    }
  }
  return made;
}

template <int Blocks, class Executor>
std::vector<float> orthonormal(Executor const& exec, columns_problem const& problem) {
  std::int64_t const whole = (problem.columns + 31) / 32 * 32;
  std::vector<double> splits(static_cast<std::size_t>(product_splits::splits * whole * whole), -77.0);
  std::vector<double> factor(static_cast<std::size_t>(whole * whole), -77.0);
  std::vector<float> result(problem.values.size(), -77.0F);
  matrix_view<float const> const from(problem.values.data(), {problem.rows, problem.columns});
  view<double, 3> const parts(splits.data(), {product_splits::splits, whole, whole});
  matrix_view<double> const root(factor.data(), {whole, whole});
  product_splits const products{from, parts};
  exec.run(products, products.groups());
  exec.run(factor_blocks<Blocks>{parts, problem.columns, root}, 1);
  solve_blocks const solve{root, from, {result.data(), {problem.rows, problem.columns}}};
  exec.run(solve, solve.groups());
  return result;
}

double worst_product(std::vector<float> const& q, std::int64_t rows, std::int64_t columns) {
  double worst = 0;
  for (std::int64_t a = 0; a < columns; ++a) {
    for (std::int64_t b = a; b < columns; ++b) {
      double sum = a == b ? -1.0 : 0.0;
      for (std::int64_t i = 0; i < rows; ++i) {
        sum +=
            double{q[static_cast<std::size_t>(i * columns + a)]} * double{q[static_cast<std::size_t>(i * columns + b)]};
      }
      worst = std::max(worst, std::fabs(sum));
    }
  }
  return worst;
}

/// The largest part of a column k that columns 0 to k of q leave, over all columns.
double worst_left(columns_problem const& problem, std::vector<float> const& q) {
  double worst = 0;
  for (std::int64_t k = 0; k < problem.columns; ++k) {
    double whole = 0;
    double held = 0;
    for (std::int64_t i = 0; i < problem.rows; ++i) {
      double const value = double{problem.values[static_cast<std::size_t>(i * problem.columns + k)]};
      whole += value * value;
    }
    for (std::int64_t j = 0; j <= k; ++j) {
      double product = 0;
      for (std::int64_t i = 0; i < problem.rows; ++i) {
        product += double{problem.values[static_cast<std::size_t>(i * problem.columns + k)]} *
                   double{q[static_cast<std::size_t>(i * problem.columns + j)]};
      }
      held += product * product;
    }
    worst = std::max(worst, std::fabs(whole - held) / whole);
  }
  return worst;
}

}  // namespace

TEST_CASE("columns become orthonormal, each in the span of those up to it", "[host][slow][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const rows : {200, 1024}) {
    for (std::int64_t const columns : {1, 31, 32, 33, 64, 100, 160}) {
      CAPTURE(rows, columns);
      auto const plain = make_columns(rows, columns, [](std::int64_t) { return 1.0; });
      auto const q = orthonormal<5>(exec, plain);
      CHECK(worst_product(q, rows, columns) < 3e-6);
      CHECK(worst_left(plain, q) < 3e-6);
      auto const graded =
          make_columns(rows, columns, [](std::int64_t k) { return std::pow(10.0, -5.0 * double(k) / 160); });
      CHECK(worst_product(orthonormal<5>(exec, graded), rows, columns) < 3e-6);
    }
  }
}

TEST_CASE("a larger scratch gives the same bits, and more columns", "[host][threads]") {
  auto const columns = make_columns(150, 70, [](std::int64_t) { return 1.0; });
  auto const one = orthonormal<5>(cpu{.threads = 1}, columns);
  CHECK(one == orthonormal<6>(cpu{.threads = 1}, columns));
  auto const wide = make_columns(300, 192, [](std::int64_t) { return 1.0; });
  CHECK(worst_product(orthonormal<6>(cpu{.threads = 2}, wide), 300, 192) < 3e-6);
}

TEST_CASE("making columns orthonormal keeps the rules for programs", "[host]") {
  auto const columns = make_columns(150, 70, [](std::int64_t) { return 1.0; });
  CHECK(orthonormal<5>(cpu{.threads = 1}, columns) == orthonormal<5>(testing::adversary{.seed = 4}, columns));
}

TEST_CASE("columns that depend on others become short, and all others orthonormal", "[host]") {
  std::int64_t const columns = 70;
  auto same = make_columns(100, columns, [](std::int64_t) { return 1.0; });
  std::vector<std::int64_t> const dependent{35, 37, 38};
  for (std::size_t i = 0; i < 100; ++i) {
    float* const row = &same.values[static_cast<std::size_t>(columns) * i];
    row[35] = row[34];
    row[37] = row[3];
    row[38] = 0.0F;
  }
  auto q = orthonormal<5>(cpu{.threads = 1}, same);
  for (std::int64_t const column : dependent) {
    for (std::int64_t i = 0; i < 100; ++i) {
      float& value = q[static_cast<std::size_t>(i * columns + column)];
      CHECK(std::fabs(value) < 1e-6F);
      value = testing::gauss().value(7, static_cast<std::uint64_t>(100 * column + i));
    }
  }
  CHECK(worst_product(orthonormal<5>(cpu{.threads = 1}, {100, columns, q}), 100, columns) < 3e-6);
  std::vector<float> others;
  for (std::int64_t i = 0; i < 100; ++i) {
    for (std::int64_t k = 0; k < columns; ++k) {
      if (std::find(dependent.begin(), dependent.end(), k) == dependent.end()) {
        others.push_back(q[static_cast<std::size_t>(i * columns + k)]);
      }
    }
  }
  CHECK(worst_product(others, 100, columns - 3) < 3e-6);
}

TEST_CASE("images of columns are products with a symmetric matrix, and a shift", "[host][threads]") {
  for (std::int64_t const width : {1, 31, 64, 130}) {
    for (std::int64_t const across : {1, 33, 40}) {
      CAPTURE(width, across);
      std::vector<float> gram(static_cast<std::size_t>(width * width));
      for (std::int64_t i = 0; i < width; ++i) {
        for (std::int64_t j = 0; j <= i; ++j) {
          float const value = testing::gauss().value(8, static_cast<std::uint64_t>(i * width + j));
          gram[static_cast<std::size_t>(i * width + j)] = gram[static_cast<std::size_t>(j * width + i)] = value;
        }
      }
      auto const columns = make_columns(width, across, [](std::int64_t) { return 1.0; });
      std::vector<float> images(static_cast<std::size_t>(width * across), -77.0F);
      std::vector<subspace_measures> const measures{{0.0, 0.0, 2.5F}};
      gram_images const program{{gram.data(), {width, width}},
                                measures,
                                {columns.values.data(), {width, across}},
                                {images.data(), {width, across}}};
      cpu{.threads = 2}.run(program, program.groups());
      double worst = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        for (std::int64_t k = 0; k < across; ++k) {
          double expected = 2.5 * double{columns.values[static_cast<std::size_t>(i * across + k)]};
          for (std::int64_t j = 0; j < width; ++j) {
            expected += double{gram[static_cast<std::size_t>(i * width + j)]} *
                        double{columns.values[static_cast<std::size_t>(j * across + k)]};
          }
          worst = std::max(worst, std::fabs(expected - double{images[static_cast<std::size_t>(i * across + k)]}));
        }
      }
      CHECK(worst < 2e-7 * 16 * std::sqrt(double(width)));
    }
  }
}
