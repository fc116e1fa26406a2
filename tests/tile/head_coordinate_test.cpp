// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <type_traits>

#include <tessera/tile/head_coordinate.hpp>

#include "support/catch.hpp"

TEST_CASE("coordinates of boxes are the same only if all three numbers are", "[host]") {
  using tessera::head_coordinate;
  STATIC_REQUIRE(std::is_trivially_copyable_v<head_coordinate>);
  STATIC_REQUIRE(sizeof(head_coordinate) == 12);
  constexpr head_coordinate coordinate{.column = 64, .row = -3, .head = 7};
  STATIC_REQUIRE(coordinate == head_coordinate{64, -3, 7});
  STATIC_REQUIRE(coordinate != head_coordinate{65, -3, 7});
  STATIC_REQUIRE(coordinate != head_coordinate{64, 3, 7});
  STATIC_REQUIRE(coordinate != head_coordinate{64, -3, 8});
}
