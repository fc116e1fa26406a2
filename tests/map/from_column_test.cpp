// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/map/add_bias.hpp>
#include <tessera/map/from_column.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/testing/laws/sum_map.hpp>

#include "support/catch.hpp"
#include "support/map_sums.hpp"

using namespace tessera;
using namespace tessera_test;

static_assert(SumMap<from_column<plain_sum>> && SumMap<from_column<from_column<add_bias<float>>>>);

TEST_CASE("the map of a part of the columns has the columns of the whole matrix", "[host]") {
  std::vector<float> const bias{1.0F, 10.0F, 100.0F, 1000.0F};
  from_column<add_bias<float>> const map{{bias}, 2};
  CHECK(map(0.5F, 7, 0) == 100.5F);
  CHECK(map(0.5F, 7, 1) == 1000.5F);
  CHECK(from_column<from_column<add_bias<float>>>{{{bias}, 1}, 2}(0.0F, 0, 0) == 1000.0F);
  CHECK(from_column<plain_sum>{{}, 5}(std::int32_t{-3}, 1, 1) == -3);
}

TEST_CASE("the map of a part of the columns keeps the laws of a SumMap", "[host]") {
  std::vector<float> const bias{1.0F, 10.0F, 100.0F, 1000.0F};
  from_column<add_bias<float>> const map{{bias}, 2};
  CHECK(testing::check_map_laws(map, some_sums(), 2).text() == "");
}
