// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/core/int4.hpp>

#include "support/catch.hpp"

TEST_CASE("every pair of 4-bit values comes back from its byte", "[host][int4]") {
  for (int low = tessera::int4x2::smallest; low <= tessera::int4x2::largest; ++low) {
    for (int high = tessera::int4x2::smallest; high <= tessera::int4x2::largest; ++high) {
      auto const pair = tessera::pack_int4(low, high);
      CHECK(tessera::low(pair) == low);
      CHECK(tessera::high(pair) == high);
    }
  }
}

TEST_CASE("the first 4-bit value lies in the low nibble", "[host][int4]") {
  STATIC_REQUIRE(tessera::pack_int4(-8, 7).bits == 0x78);
  STATIC_REQUIRE(tessera::pack_int4(1, -1).bits == 0xf1);
  STATIC_REQUIRE(sizeof(tessera::int4x2) == 1);
}

TEST_CASE("a 4-bit value out of range keeps its low bits and leaves its neighbour alone", "[host][int4]") {
  STATIC_REQUIRE(tessera::pack_int4(8, 0) == tessera::pack_int4(-8, 0));
}
