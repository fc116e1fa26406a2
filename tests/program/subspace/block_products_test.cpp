// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/subspace/block_products.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

std::vector<float> normal_numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  testing::fill(testing::gauss(), seed, values.data(), values.size());
  return values;
}

/// How many of the 32 x 32 sums of a block are not those of a loop in double. Both matrices have `rows` rows.
template <product_sums Sums>
int wrong_block(std::int64_t rows, std::int64_t a_columns, std::int64_t b_columns, block_products::range const& at) {
  auto const of_a = normal_numbers(rows * a_columns, 1);
  auto const of_b = normal_numbers(rows * b_columns, 2);
  matrix_view<float const> const a(of_a.data(), {rows, a_columns});
  matrix_view<float const> const b(of_b.data(), {b_columns, rows});  // turned, so that strides count
  auto const scratch = std::make_unique<block_products::scratch_type>();
  std::vector<double> sums(32 * 32, -777.0);
  block_products::run<Sums>(serial_group<block_products::lanes>{}, a, b.transposed(), at, *scratch,
                            [&](int i, int j, double sum) { sums[static_cast<std::size_t>(32 * i + j)] = sum; });
  int wrong = 0;
  for (std::int64_t i = 0; i < 32; ++i) {
    for (std::int64_t j = 0; j < 32; ++j) {
      double expected = 0;
      for (std::int64_t row = at.first; row < at.end; ++row) {
        if (at.a_column + i < a_columns && at.b_column + j < b_columns) {
          expected += static_cast<double>(a(row, at.a_column + i)) * static_cast<double>(b(at.b_column + j, row));
        }
      }
      double const bound = Sums == product_sums::in_double ? 1e-12 : 1e-4;
      wrong += std::fabs(sums[static_cast<std::size_t>(32 * i + j)] - expected) <= bound ? 0 : 1;
    }
  }
  return wrong;
}

/// How many elements of (gram + shift) columns / trace are wrong.
template <class Executor>
int wrong_images(Executor const& exec, std::int64_t width, std::int64_t columns, bool is_measured) {
  auto gram = normal_numbers(width * width, 3);
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      gram[static_cast<std::size_t>(i * width + j)] = gram[static_cast<std::size_t>(j * width + i)];
    }
  }
  auto const from = normal_numbers(width * columns, 4);
  std::vector<float> target(from.size(), -777.0F);
  std::vector<subspace_measures> const measures{{40.0, 0.0, 2.5F}};
  array_view<subspace_measures const> known;
  if (is_measured) {
    known = measures;
  }
  gram_images const program{
      {gram.data(), {width, width}}, known, {from.data(), {width, columns}}, {target.data(), {width, columns}}};
  exec.run(program, program.groups());
  int wrong = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t k = 0; k < columns; ++k) {
      double expected = 0;
      for (std::int64_t j = 0; j < width; ++j) {
        expected += static_cast<double>(gram[static_cast<std::size_t>(i * width + j)]) *
                    static_cast<double>(from[static_cast<std::size_t>(j * columns + k)]);
      }
      auto const at = static_cast<std::size_t>(i * columns + k);
      expected = is_measured ? (expected + 2.5 * static_cast<double>(from[at])) / 40.0 : expected;
      wrong += std::fabs(static_cast<double>(target[at]) - expected) <= 1e-4 ? 0 : 1;
    }
  }
  return wrong;
}

/// How many elements on and above the diagonal of columns^T columns are not the sum of their splits.
template <class Executor>
int wrong_splits(Executor const& exec, std::int64_t width, std::int64_t columns) {
  auto const from = normal_numbers(width * columns, 5);
  std::int64_t const whole = (columns + 31) / 32 * 32;
  std::vector<double> splits(static_cast<std::size_t>(product_splits::splits * whole * whole), -777.0);
  product_splits const program{{from.data(), {width, columns}},
                               {splits.data(), {product_splits::splits, whole, whole}}};
  exec.run(program, program.groups());
  int wrong = 0;
  for (std::int64_t i = 0; i < whole; ++i) {
    for (std::int64_t k = i; k < whole; ++k) {
      double found = 0;
      for (std::int64_t split = 0; split < product_splits::splits; ++split) {
        found += splits[static_cast<std::size_t>((split * whole + i) * whole + k)];
      }
      double expected = 0;
      for (std::int64_t row = 0; row < width && k < columns; ++row) {
        expected += static_cast<double>(from[static_cast<std::size_t>(row * columns + i)]) *
                    static_cast<double>(from[static_cast<std::size_t>(row * columns + k)]);
      }
      wrong += std::fabs(found - expected) <= 1e-10 ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("a block of products is that of a loop in double, with zeros outside of the matrices", "[host]") {
  for (std::int64_t const rows : {0, 1, 7, 63, 64, 65, 200}) {
    CAPTURE(rows);
    CHECK(wrong_block<product_sums::in_double>(rows, 32, 32, {0, 0, 0, rows}) == 0);
    CHECK(wrong_block<product_sums::in_double>(rows, 40, 70, {32, 64, rows / 3, rows}) == 0);
    CHECK(wrong_block<product_sums::in_float>(rows, 33, 31, {0, 0, 0, rows}) == 0);
  }
}

TEST_CASE("images of columns are multiplied by the products of keys, shifted and scaled", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const width : {1, 31, 32, 33, 100}) {
    for (std::int64_t const columns : {1, 32, 33}) {
      CAPTURE(width, columns);
      CHECK(wrong_images(exec, width, columns, false) == 0);
      CHECK(wrong_images(exec, width, columns, true) == 0);
    }
  }
}

TEST_CASE("splits of the rows add up to the products of columns", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const width : {1, 64, 255, 256, 257, 600}) {
    for (std::int64_t const columns : {1, 32, 40}) {
      CAPTURE(width, columns);
      CHECK(wrong_splits(exec, width, columns) == 0);
    }
  }
}

TEST_CASE("products of blocks keep the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 9};
  CHECK(wrong_images(exec, 40, 33, true) == 0);
  CHECK(wrong_splits(exec, 70, 33) == 0);
}
