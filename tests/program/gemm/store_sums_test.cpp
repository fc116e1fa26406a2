// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Says where it is called.
struct coordinate_and_sum {
  TESSERA_FN float operator()(float sum, std::int64_t row, std::int64_t column) const {
    return sum + static_cast<float>(1000 * row + 10 * column);
  }
};

}  // namespace

TEST_CASE("sums are stored at their coordinates, in a matrix of any strides, after their map", "[host]") {
  std::vector<float> memory(60, -7.0F);
  matrix_view<float> const turned(memory.data() + 3, {4, 3}, {2, 11});
  store_sums<float, coordinate_and_sum> const epilogue{turned, {}};
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t column = 0; column < 3; ++column) {
      epilogue(row, column, 0.5F);
    }
  }
  int written = 0;
  int wrong = 0;
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t column = 0; column < 3; ++column) {
      wrong += memory[static_cast<std::size_t>(3 + 2 * row + 11 * column)] ==
                       0.5F + static_cast<float>(1000 * row + 10 * column)
                   ? 0
                   : 1;
    }
  }
  for (float const value : memory) {
    written += value == -7.0F ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(written == 12);
}

TEST_CASE("a stored sum is rounded once, to the nearest, and integers stay as they are", "[host]") {
  bfloat16 element{};
  store_sums<bfloat16, plain_sum> const narrow{{&element, {1, 1}}, {}};
  int wrong = 0;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    float const sum = testing::gauss{100.0F}.value(1, i);
    narrow(0, 0, sum);
    wrong += element == store<bfloat16>(sum) ? 0 : 1;
  }
  CHECK(wrong == 0);
  narrow(0, 0, std::numeric_limits<float>::quiet_NaN());
  CHECK(std::isnan(load(element)));
  std::int32_t whole = 0;
  store_sums<std::int32_t, plain_sum> const exact{{&whole, {1, 1}}, {}};
  exact(0, 0, std::int32_t{0x7ffffff1});
  CHECK(whole == 0x7ffffff1);
  float widened = 0;
  store_sums<float, plain_sum> const of_integers{{&widened, {1, 1}}, {}};
  of_integers(0, 0, std::int32_t{-16777217});
  CHECK(widened == -16777216.0F);
}
