// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/program/gemm/select_target.hpp>
#include <tessera/program/gemm/store_compact.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/gemm_reference.hpp"

using namespace tessera;

namespace {

/// A product of 70 x 130 sums, more than one tile in each direction, and all of its sums.
struct some_product {
  static constexpr std::int64_t rows = 70;
  static constexpr std::int64_t columns = 130;
  static constexpr std::int64_t depth = 40;
  std::vector<bfloat16> a = tessera_test::operand_samples<bfloat16>(rows * depth, 1);
  std::vector<bfloat16> b = tessera_test::operand_samples<bfloat16>(columns * depth, 2);
  std::vector<float> sums = std::vector<float>(rows * columns);

  some_product() {
    linear<bfloat16>::forward(cpu{.threads = 1}, left(), right(), matrix_view<float>(sums.data(), {rows, columns}));
  }
  matrix_view<bfloat16 const> left() const { return {a.data(), {rows, depth}}; }
  matrix_view<bfloat16 const> right() const { return {b.data(), {columns, depth}}; }
  float sum(std::int64_t row, std::int64_t column) const {
    return sums[static_cast<std::size_t>(row * columns + column)];
  }
  template <class Executor, class Epilogue>
  void run(Executor const& exec, Epilogue const& epilogue) const {
    using source = dense<bfloat16>;
    gemm_tiles<bfloat16, source, source, Epilogue> const program{{left()}, {right()}, epilogue};
    exec.run(program, program.tiles());
  }
};

constexpr float untouched = -12345;

}  // namespace

TEST_CASE("the sum of each row's target is selected, and nothing is written for a row without one", "[host]") {
  some_product const product;
  std::vector<std::int64_t> targets;
  for (std::int64_t row = 0; row < product.rows; ++row) {
    targets.push_back(row % 5 == 3 ? -1 : (row * 37) % product.columns);
  }
  targets[6] = product.columns;
  targets[7] = -100;
  std::vector<float> selected(targets.size(), untouched);
  product.run(testing::adversary{.seed = 2}, select_target<float, scaled_sum>{targets, selected, {2.0F}});
  for (std::size_t row = 0; row < targets.size(); ++row) {
    bool const has_target = targets[row] >= 0 && targets[row] < product.columns;
    CHECK(selected[row] == (has_target ? 2 * product.sum(static_cast<std::int64_t>(row), targets[row]) : untouched));
  }
}

TEST_CASE("some rows and columns of a product are stored side by side", "[host]") {
  some_product const product;
  std::vector<std::int64_t> rows(product.rows, -1);
  std::vector<std::int64_t> columns(product.columns, -1);
  std::vector<std::int64_t> const kept_rows{69, 0, 63, 64};
  std::vector<std::int64_t> const kept_columns{128, 5, 64};
  for (std::size_t i = 0; i < kept_rows.size(); ++i) {
    rows[static_cast<std::size_t>(kept_rows[i])] = static_cast<std::int64_t>(i);
  }
  for (std::size_t i = 0; i < kept_columns.size(); ++i) {
    columns[static_cast<std::size_t>(kept_columns[i])] = static_cast<std::int64_t>(i);
  }
  std::vector<float> found(4 * 3, untouched);
  matrix_view<float> const target(found.data(), {4, 3});
  product.run(testing::adversary{.seed = 3}, store_compact<float, plain_sum>{target, rows, columns, {}});
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i] == product.sum(kept_rows[i / 3], kept_columns[i % 3]));
  }
}

TEST_CASE("without a list rows and columns keep their places, and what the target does not have is left out",
          "[host]") {
  some_product const product;
  std::vector<float> found(66 * 131, untouched);
  matrix_view<float> const target(found.data(), {66, 131});
  product.run(cpu{.threads = 2}, store_compact<float, plain_sum>{target, {}, {}, {}});
  int wrong = 0;
  for (std::int64_t row = 0; row < 66; ++row) {
    for (std::int64_t column = 0; column < 131; ++column) {
      wrong += target(row, column) == (column < product.columns ? product.sum(row, column) : untouched) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}
