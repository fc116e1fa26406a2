// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/testing/laws/sum_map.hpp>

#include "support/catch.hpp"
#include "support/map_sums.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("the map that changes nothing leaves every bit and the type of a sum", "[host]") {
  CHECK(testing::check_map_laws(plain_sum{}, some_sums(), 4).text() == "");
  for (float const sum : some_sums()) {
    CHECK(bit_cast<std::uint32_t>(plain_sum{}(sum, 3, 5)) == bit_cast<std::uint32_t>(sum));
  }
  // A whole number that no float is.
  STATIC_REQUIRE(std::is_same_v<decltype(plain_sum{}(std::int32_t{1}, 0, 0)), std::int32_t>);
  STATIC_REQUIRE(plain_sum{}(std::int32_t{16777217}, 0, 0) == 16777217);
  STATIC_REQUIRE(plain_sum{}(std::numeric_limits<std::int32_t>::min(), 7, 9) ==
                 std::numeric_limits<std::int32_t>::min());
}
