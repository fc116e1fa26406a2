// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tile/source/dense.hpp>

#include "support/catch.hpp"
#include "support/double_rows.hpp"
#include "support/gemm_reference.hpp"

using namespace tessera;

namespace {

constexpr float poison = -12345;

/// An epilogue that keeps sums and counts how often it is called for each; calls beyond the result are counted apart.
struct counting_epilogue {
  matrix_view<float> sums;
  matrix_view<std::int32_t> calls;
  array_view<std::int32_t> calls_outside;  // one number

  void operator()(std::int64_t row, std::int64_t column, float sum) const {
    if (row < 0 || row >= sums.extent(0) || column < 0 || column >= sums.extent(1)) {
      ++calls_outside[0];
      return;
    }
    sums(row, column) = sum;
    ++calls(row, column);
  }
};

/// A source whose columns from `first_zero` to `end_zero` - 1 are said to be zero, although they are NaN in memory.
struct partly_zero {
  using value_type = bfloat16;
  dense<bfloat16> all;
  std::int64_t first_zero;
  std::int64_t end_zero;
  array_view<std::int32_t> loads_of_zeros;  // one number: how often such columns were loaded nevertheless

  std::int64_t rows() const { return all.rows(); }
  std::int64_t columns() const { return all.columns(); }
  template <class Group, class Tile>
  void load(Group const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    loads_of_zeros[0] += is_zero(first_row, Tile::rows, first_column, Tile::columns) ? 1 : 0;
    all.load(group, tile, first_row, first_column);
  }
  bool is_zero(std::int64_t, std::int64_t, std::int64_t first_column, std::int64_t column_count) const {
    return first_column >= first_zero && first_column + column_count <= end_zero;
  }
};

/// Two matrices, and what a program left of their product.
struct some_product {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  std::vector<bfloat16> a = tessera_test::operand_samples<bfloat16>(rows * depth, 1);
  std::vector<bfloat16> b = tessera_test::operand_samples<bfloat16>(columns * depth, 2);
  std::vector<float> sums = std::vector<float>(static_cast<std::size_t>(rows * columns), poison);
  std::vector<std::int32_t> calls = std::vector<std::int32_t>(static_cast<std::size_t>(rows * columns));
  std::vector<std::int32_t> calls_outside = {0};

  dense<bfloat16> left() const { return {matrix_view<bfloat16 const>(a.data(), {rows, depth})}; }
  dense<bfloat16> right() const { return {matrix_view<bfloat16 const>(b.data(), {columns, depth})}; }

  template <class Executor, class Left>
  void run(Executor const& exec, Left const& from) {
    counting_epilogue const epilogue{{sums.data(), {rows, columns}}, {calls.data(), {rows, columns}}, calls_outside};
    gemm_tiles<bfloat16, Left, dense<bfloat16>, counting_epilogue> const program{from, right(), epilogue};
    exec.run(program, program.tiles());
  }
  /// Checks that each sum came once, and is that of the columns before `first_zero` and from `end_zero` on.
  void check(std::int64_t first_zero = 0, std::int64_t end_zero = 0) const {
    CAPTURE(rows, columns, depth);
    auto left = tessera_test::doubles_of(a);
    auto right = tessera_test::doubles_of(b);
    for (std::int64_t row = 0; row < rows && first_zero < end_zero; ++row) {
      std::fill(left.begin() + row * depth + first_zero, left.begin() + row * depth + end_zero, 0.0);
    }
    auto const left_sizes = tessera_test::magnitudes_of(left);
    auto const right_sizes = tessera_test::magnitudes_of(right);
    int wrong_calls = 0;
    int wrong_sums = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        std::int64_t const of_row = row * depth;
        std::int64_t const of_column = column * depth;
        double const expected = tessera_test::row_product(left.data() + of_row, right.data() + of_column, depth);
        double const magnitude =
            tessera_test::row_product(left_sizes.data() + of_row, right_sizes.data() + of_column, depth);
        auto const index = static_cast<std::size_t>(row * columns + column);
        wrong_calls += calls[index] == 1 ? 0 : 1;
        // Not greater, so that a NaN is wrong.
        bool const is_right = std::abs(static_cast<double>(sums[index]) - expected) <=
                              tessera_test::sum_bound<bfloat16>(depth) * magnitude;
        wrong_sums += is_right ? 0 : 1;
      }
    }
    CHECK(wrong_calls == 0);
    CHECK(wrong_sums == 0);
    CHECK(calls_outside[0] == 0);
  }
};

}  // namespace

TEST_CASE("gemm_tiles gives each sum inside of the result to the epilogue once", "[host]") {
  for (std::int64_t const rows : {0, 1, 7, 63, 64, 65, 130}) {
    for (std::int64_t const columns : {0, 1, 63, 64, 65}) {
      for (std::int64_t const depth : {0, 1, 31, 32, 33, 70}) {
        some_product product{rows, columns, depth};
        product.run(testing::adversary{.seed = static_cast<std::uint64_t>(rows + columns + depth)}, product.left());
        product.check();
      }
    }
  }
}

TEST_CASE("sums of gemm_tiles have the same bits in whatever order tiles come", "[host][threads][slow]") {
  some_product first{200, 130, 100};
  first.run(cpu{.threads = 1}, first.left());
  first.check();
  for (std::uint64_t const seed : {1, 2, 3}) {
    some_product other{200, 130, 100};
    other.run(testing::adversary{.seed = seed}, other.left());
    CHECK(other.sums == first.sums);
  }
  some_product threads{200, 130, 100};
  threads.run(cpu{.threads = 4}, threads.left());
  CHECK(threads.sums == first.sums);
}

TEST_CASE("gemm_tiles neither loads nor multiplies what the first source says is zero", "[host]") {
  constexpr std::int64_t first_zero = 32;
  constexpr std::int64_t end_zero = 96;
  some_product product{70, 65, 130};
  for (std::int64_t row = 0; row < product.rows; ++row) {
    for (std::int64_t column = first_zero; column < end_zero; ++column) {
      product.a[static_cast<std::size_t>(row * product.depth + column)] = store<bfloat16>(std::nanf(""));
    }
  }
  std::vector<std::int32_t> loads_of_zeros = {0};
  product.run(testing::adversary{.seed = 5}, partly_zero{product.left(), first_zero, end_zero, loads_of_zeros});
  CHECK(loads_of_zeros[0] == 0);
  product.check(first_zero, end_zero);
}
