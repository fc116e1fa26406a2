// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/map/add_bias.hpp>
#include <tessera/testing/laws/sum_map.hpp>

#include "support/catch.hpp"
#include "support/map_sums.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("each column gets its own bias, in every row", "[host]") {
  std::vector<float> const bias{1.0F, -2.0F, 0.5F, 100.0F};
  add_bias<float> const map{bias};
  CHECK(testing::check_map_laws(map, some_sums(), 4).text() == "");
  for (float const sum : some_sums()) {
    for (std::int64_t column = 0; column < 4; ++column) {
      // In double a sum is rounded twice, which makes no difference to these numbers.
      auto const expected =
          static_cast<float>(static_cast<double>(sum) + static_cast<double>(bias[static_cast<std::size_t>(column)]));
      CAPTURE(sum, column);
      for (std::int64_t const row : {std::int64_t{0}, std::int64_t{1} << 40}) {
        float const found = map(sum, row, column);
        CHECK((found == expected || (std::isnan(found) && std::isnan(expected))));
      }
    }
  }
}

TEST_CASE("a bias of 16 bits and an integer sum are added as floats", "[host]") {
  std::vector<bfloat16> const bias{store<bfloat16>(0.0F), store<bfloat16>(1.5F)};
  add_bias<bfloat16> const map{bias};
  CHECK(map(2.25F, 0, 1) == 3.75F);
  CHECK(map(std::int32_t{-3}, 0, 1) == -1.5F);
  CHECK(map(std::int32_t{16777217}, 0, 0) == 16777216.0F);
}

TEST_CASE("an infinite bias, or none at all, reaches its column alone", "[host]") {
  float const infinity = std::numeric_limits<float>::infinity();
  std::vector<float> const bias{-infinity, std::numeric_limits<float>::quiet_NaN(), 1.0F};
  add_bias<float> const map{bias};
  CHECK(map(5.0F, 0, 0) == -infinity);
  CHECK(std::isnan(map(infinity, 0, 0)));
  CHECK(std::isnan(map(5.0F, 0, 1)));
  CHECK(map(5.0F, 0, 2) == 6.0F);
}

TEST_CASE("a bias of another length than the outputs' columns is refused in the name of the call", "[host]") {
  std::vector<float> const bias(3);
  CHECK_NOTHROW(add_bias<float>{bias}.check_sums("f", 7, 3));
  CHECK(message_of([&] { add_bias<float>{bias}.check_sums("f", 7, 4); }) ==
        "f: the bias has 3 values but the outputs have 4 columns");
  CHECK(message_of([] {
          add_bias<float>{{nullptr, 4}}.check_sums("f", 7, 4);
        }) == "f: the biases have no memory but 4 elements");
}
