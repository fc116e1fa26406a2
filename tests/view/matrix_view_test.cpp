// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a matrix has rows and columns and its rows are lists", "[host]") {
  std::vector<std::int32_t> numbers(12);
  for (int i = 0; i < 12; ++i) {
    numbers[static_cast<std::size_t>(i)] = i;
  }
  matrix_view<std::int32_t> const matrix(numbers.data(), {3, 4});
  STATIC_REQUIRE(std::is_same_v<decltype(matrix[0]), array_view<std::int32_t>>);
  CHECK(matrix.extent(0) == 3);
  CHECK(matrix.extent(1) == 4);
  int wrong = 0;
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t column = 0; column < 4; ++column) {
      wrong += matrix(row, column) == 4 * row + column && &matrix[row][column] == &matrix(row, column) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  CHECK(matrix[2].size() == 4);
  CHECK(matrix.transposed()[3].size() == 3);
  CHECK(matrix.transposed()[3][2] == 11);
}

TEST_CASE("a matrix with rows further apart than they are long is not contiguous", "[host]") {
  std::vector<float> numbers(20);
  matrix_view<float> const padded(numbers.data(), {3, 5}, {7, 1});
  CHECK(&padded(2, 4) == &numbers[18]);
  CHECK_FALSE(padded.is_contiguous());
  CHECK(padded[1].is_contiguous());
  CHECK(matrix_view<float>(numbers.data(), {1, 5}, {7, 1}).is_contiguous());
}
