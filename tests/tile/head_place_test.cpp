// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <type_traits>

#include <tessera/tile/head_place.hpp>

#include "support/catch.hpp"

TEST_CASE("places of heads are the same only if all of their coordinates are", "[host]") {
  using tessera::head_place;
  STATIC_REQUIRE(std::is_trivially_copyable_v<head_place>);
  STATIC_REQUIRE(sizeof(head_place) == 12);
  constexpr head_place place{.column = 64, .row = -3, .head = 7};
  STATIC_REQUIRE(place == head_place{64, -3, 7});
  STATIC_REQUIRE(place != head_place{65, -3, 7});
  STATIC_REQUIRE(place != head_place{64, 3, 7});
  STATIC_REQUIRE(place != head_place{64, -3, 8});
}
