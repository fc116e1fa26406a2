// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/reduce/pair_products.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"

using tessera::pair_products;
using tessera::pair_products_reducer;

TEST_CASE("pair products keep the laws", "[host]") {
  auto const same = [](pair_products const& a, pair_products const& b) {
    using tessera::testing::is_close;
    return is_close(a.first, b.first, 1e-15) && is_close(a.second, b.second, 1e-15) &&
           is_close(a.cross, b.cross, 1e-15);
  };
  auto const report =
      tessera::testing::check_laws<pair_products_reducer>({{1, 2}, {0.1F, -0.3F}, {1e10F, 3}, {0, 0}}, same);
  CHECK(report.text().empty());
}

TEST_CASE("pair products hold squares and the product", "[host]") {
  pair_products_reducer const reducer;
  auto state = reducer.identity();
  reducer.push(state, {3, 1});
  reducer.push(state, {-4, 2});
  CHECK(state.first == 25.0);
  CHECK(state.second == 5.0);
  CHECK(state.cross == -5.0);
}
