// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/tile/source/converted.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("views and sources tell their extents and elements in the same way", "[host]") {
  std::vector<float> const values{1, 2, 3, 4, 5, 6};
  matrix_view<float const> const view(values.data(), {2, 3});
  converted<float, bfloat16> const source(view);
  CHECK((detail::rows_in(view) == 2 && detail::columns_in(view) == 3));
  CHECK((detail::rows_in(source) == 2 && detail::columns_in(source) == 3));
  for (std::int64_t row = 0; row < 2; ++row) {
    for (std::int64_t column = 0; column < 3; ++column) {
      float const expected = static_cast<float>(3 * row + column + 1);
      CHECK(detail::element_of(view, row, column) == expected);
      CHECK(load(detail::element_of(source, row, column)) == expected);
    }
  }
}
