// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <type_traits>

#include <tessera/core/shape.hpp>

#include "support/catch.hpp"

TEST_CASE("a shape names its three extents and is nothing else", "[host][shape]") {
  using tile = tessera::shape<128, 256, 64>;
  STATIC_REQUIRE(tile::m == 128);
  STATIC_REQUIRE(tile::n == 256);
  STATIC_REQUIRE(tile::k == 64);
  STATIC_REQUIRE(std::is_empty_v<tile>);
  STATIC_REQUIRE_FALSE(std::is_same_v<tile, tessera::shape<256, 128, 64>>);
}
