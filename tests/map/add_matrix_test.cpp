// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/float16.hpp>
#include <tessera/map/add_matrix.hpp>
#include <tessera/testing/laws/sum_map.hpp>
#include <tessera/view/matrix_view.hpp>

#include "support/catch.hpp"
#include "support/map_sums.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("each sum gets the element at its row and column, of a matrix of any strides", "[host]") {
  std::vector<float> const kept(28, 0.25F);
  CHECK(testing::check_map_laws(add_matrix<float>{{kept.data(), {7, 4}}}, some_sums(), 4).text() == "");
  std::vector<float> memory(40);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<float>(i) * 0.5F;
  }
  add_matrix<float> const map{{memory.data(), {3, 4}, {1, 9}}};  // its columns lie one behind the other
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t column = 0; column < 4; ++column) {
      CAPTURE(row, column);
      CHECK(map(-2.0F, row, column) == static_cast<float>(row + 9 * column) * 0.5F - 2.0F);
    }
  }
}

TEST_CASE("a product is accumulated: the matrix is read each time that the map is called", "[host]") {
  std::vector<float> outputs{1.0F, 2.0F};
  matrix_view<float> const view(outputs.data(), {1, 2});
  add_matrix<float> const map{view};
  view(0, 1) = map(10.0F, 0, 1);
  view(0, 1) = map(10.0F, 0, 1);
  CHECK(outputs == std::vector<float>{1.0F, 22.0F});
}

TEST_CASE("elements of 16 bits, integer sums, infinities and NaNs are added as floats are", "[host]") {
  float const infinity = std::numeric_limits<float>::infinity();
  std::vector<float16> const memory{store<float16>(-0.5F), store<float16>(infinity)};
  add_matrix<float16> const map{{memory.data(), {2, 1}}};
  CHECK(map(std::int32_t{3}, 0, 0) == 2.5F);
  CHECK(map(3.0F, 1, 0) == infinity);
  CHECK(std::isnan(map(-infinity, 1, 0)));
  CHECK(std::isnan(map(std::numeric_limits<float>::quiet_NaN(), 0, 0)));
}

TEST_CASE("a matrix of other extents than the outputs is refused in the name of the call", "[host]") {
  std::vector<float> const residual(6);
  add_matrix<float> const map{{residual.data(), {2, 3}}};
  CHECK_NOTHROW(map.check_sums("f", 2, 3));
  CHECK(message_of([&] { map.check_sums("f", 3, 2); }) ==
        "f: the matrix to be added is 2 x 3 but the outputs are 3 x 2");
  CHECK(message_of([] {
          add_matrix<float>{{nullptr, {2, 3}}}.check_sums("f", 2, 3);
        }) == "f: the elements to be added have no memory but 6 elements");
}
