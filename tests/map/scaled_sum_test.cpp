// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <limits>

#include <tessera/map/scaled_sum.hpp>
#include <tessera/testing/laws/sum_map.hpp>

#include "support/catch.hpp"
#include "support/map_sums.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a scaled sum is the product, rounded once, wherever it lies", "[host]") {
  CHECK(testing::check_map_laws(scaled_sum{0.1F}, some_sums(), 4).text() == "");
  for (float const scale : {0.1F, -3.0F, 0.0F, 1e20F}) {
    for (float const sum : some_sums()) {
      // The product of two floats is exact in double.
      auto const expected = static_cast<float>(static_cast<double>(sum) * static_cast<double>(scale));
      float const found = scaled_sum{scale}(sum, 2, 3);
      CAPTURE(scale, sum);
      CHECK((found == expected || (std::isnan(found) && std::isnan(expected))));
      CHECK(std::signbit(found) == std::signbit(expected));
    }
  }
}

TEST_CASE("an integer sum is scaled as the float that is nearest to it", "[host]") {
  STATIC_REQUIRE(scaled_sum{0.25F}(std::int32_t{-7}, 0, 0) == -1.75F);
  STATIC_REQUIRE(scaled_sum{1.0F}(std::int32_t{16777219}, 0, 0) == 16777220.0F);
  STATIC_REQUIRE(scaled_sum{0.5F}(std::numeric_limits<std::int32_t>::min(), 0, 0) == -1073741824.0F);
}
