// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/subspace/iterate_in_blocks.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

std::vector<float> samples(std::int64_t count, std::uint64_t seed) {
  std::vector<float> made(static_cast<std::size_t>(count));
  testing::fill(testing::gauss{}, seed, made.data(), made.size());
  return made;
}

template <class Executor>
std::vector<float> started(Executor const& exec, std::vector<float> const& gram, std::int64_t width,
                           std::int64_t columns, subspace_measures& measured) {
  std::vector<float> made(static_cast<std::size_t>(width * columns), -777.0F);
  start_rounds const program{{gram.data(), {width, width}}, {made.data(), {width, columns}}, {&measured, 1}};
  exec.run(program, program.groups());
  return made;
}

template <class Executor>
void check_start(Executor const& exec) {
  for (std::int64_t const width : {1, 7, 8, 33, 300}) {
    CAPTURE(width);
    auto const gram = samples(width * width, 1);
    std::int64_t const columns = std::max(width / 2, std::int64_t{1});
    subspace_measures found{-1.0, -1.0, -1.0F, 4.0F};
    auto const made = started(exec, gram, width, columns, found);
    double trace = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      trace += double{gram[static_cast<std::size_t>(i * width + i)]};
    }
    CHECK(found.trace == Approx(trace).epsilon(1e-12));
    CHECK(found.held == 0.0);
    CHECK(found.shift == (trace > 0 ? Approx(1e-7 * trace) : Approx(1.0)));
    CHECK(found.scale == 4.0F);  // that is of the keys
    if (width > 1) {
      CHECK(std::all_of(made.begin(), made.end(), [](float value) { return value >= -1 && value < 1; }));
      auto sorted = made;
      std::sort(sorted.begin(), sorted.end());
      auto const different = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
      CHECK(different >= 0.99 * static_cast<double>(made.size()));  // of 2^24 numbers few come twice
    }
    auto const unit = started(exec, gram, width, width, found);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < unit.size(); ++i) {
      auto const of = static_cast<std::size_t>(width);
      wrong += unit[i] == (i / of == i % of ? 1.0F : 0.0F) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

/// A factor as factor_blocks writes it: R above blocks of 32 x 32, their inverses on the diagonal, garbage below them.
struct blocked_factor {
  std::int64_t columns;
  std::int64_t whole;
  std::vector<double> upper;    ///< R
  std::vector<double> blocked;  ///< what solve_blocks takes

  explicit blocked_factor(std::int64_t of) : columns(of), whole((of + 31) / 32 * 32) {
    upper.assign(static_cast<std::size_t>(whole * whole), 0.0);
    for (std::int64_t i = 0; i < whole; ++i) {
      for (std::int64_t j = i; j < columns; ++j) {
        double const value = double{testing::gauss{.sigma = 0.1}.value(2, static_cast<std::uint64_t>(i * whole + j))};
        at(upper, i, j) = i == j ? 1.5 + value : value;
      }
      at(upper, i, i) = i < columns ? at(upper, i, i) : 1.0;
    }
    blocked.assign(upper.size(), -777.0);
    for (std::int64_t i = 0; i < whole; ++i) {
      for (std::int64_t j = i / 32 * 32; j < whole; ++j) {
        at(blocked, i, j) = j / 32 > i / 32 ? at(upper, i, j) : 0.0;
      }
    }
    for (std::int64_t first = 0; first < whole; first += 32) {
      for (std::int64_t j = first; j < first + 32; ++j) {  // column j of the inverse, from its diagonal upwards
        for (std::int64_t i = j; i >= first; --i) {
          double sum = i == j ? 1.0 : 0.0;
          for (std::int64_t k = i + 1; k <= j; ++k) {
            sum -= at(upper, i, k) * at(blocked, k, j);
          }
          at(blocked, i, j) = sum / at(upper, i, i);
        }
      }
    }
  }
  double& at(std::vector<double>& of, std::int64_t row, std::int64_t column) const {
    return of[static_cast<std::size_t>(row * whole + column)];
  }
};

template <class Executor>
void check_solved(Executor const& exec, std::int64_t rows, std::int64_t columns) {
  CAPTURE(rows, columns);
  blocked_factor factor(columns);
  auto const source = samples(rows * columns, 3);
  std::vector<float> target(source.size(), -777.0F);
  matrix_view<double const> const root(factor.blocked.data(), {factor.whole, factor.whole});
  solve_blocks const program{root, {source.data(), {rows, columns}}, {target.data(), {rows, columns}}};
  exec.run(program, program.groups());
  double worst = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      double product = 0;  // of a row of the target and a column of R
      for (std::int64_t k = 0; k <= j; ++k) {
        product += double{target[static_cast<std::size_t>(i * columns + k)]} * factor.at(factor.upper, k, j);
      }
      worst = std::max(worst, std::fabs(product - double{source[static_cast<std::size_t>(i * columns + j)]}));
    }
  }
  CHECK(worst < 2e-6);
  std::vector<float> in_place = source;
  solve_blocks const over{root, {in_place.data(), {rows, columns}}, {in_place.data(), {rows, columns}}};
  exec.run(over, over.groups());
  CHECK(in_place == target);
}

template <class T, class Executor>
void check_kept(Executor const& exec, std::int64_t width, std::int64_t rank) {
  CAPTURE(width, rank);
  auto const columns = samples(width * rank, 4);
  auto const images = samples(width * rank, 5);
  std::vector<T> directions(columns.size(), store<T>(-777.0F));
  std::vector<double> held(static_cast<std::size_t>(width), -777.0);
  keep_directions<T> const keep{
      {columns.data(), {width, rank}}, {images.data(), {width, rank}}, {directions.data(), {width, rank}}, held};
  exec.run(keep, keep.groups());
  subspace_measures found{7.0, -1.0, 2.0F};
  exec.run(finish_rounds{held, {&found, 1}}, 1);
  int wrong = 0;
  double all = 0;
  for (std::size_t row = 0; row < held.size(); ++row) {
    double expected = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(rank); ++k) {
      std::size_t const at = row * static_cast<std::size_t>(rank) + k;
      expected += double{columns[at]} * double{images[at]};
      wrong += to_bits(directions[at]) == to_bits(store<T>(columns[at])) ? 0 : 1;
    }
    wrong += std::fabs(held[row] - expected) < 1e-12 * static_cast<double>(rank) ? 0 : 1;
    all += expected;
  }
  CHECK(wrong == 0);
  CHECK(found.held == Approx(all).margin(1e-9));
  CHECK((found.trace == 7.0 && found.shift == 2.0F));
}

}  // namespace

TEST_CASE("rounds begin with different numbers below one, or with the unit matrix, and with the trace",
          "[host][threads]") {
  check_start(cpu{.threads = 2});
}

TEST_CASE("a matrix without a trace gets a shift of one", "[host]") {
  subspace_measures found{};
  started(cpu{.threads = 1}, std::vector<float>(25, 0.0F), 5, 2, found);
  CHECK(found.trace == 0.0);
  CHECK(found.shift == 1.0F);
}

TEST_CASE("solving by blocks undoes the product with the factor, whatever the extents, and in place too",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const columns : {1, 31, 32, 33, 100, 192}) {
    check_solved(exec, 13, columns);
  }
  check_solved(exec, 8, 40);
  check_solved(exec, 1, 40);
}

TEST_CASE("directions are the columns rounded, and hold what their images say", "[host][threads]") {
  cpu const exec{.threads = 2};
  check_kept<bfloat16>(exec, 300, 33);
  check_kept<float>(exec, 31, 1);
  check_kept<float>(exec, 1, 70);
}

TEST_CASE("the programs around rounds keep the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 71};
  check_start(exec);
  check_solved(exec, 13, 40);
  check_kept<bfloat16>(exec, 40, 33);
}
