// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/tile/gemm_schedule.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a dense schedule has every tile over the whole depth, in the order of its tiles", "[host]") {
  dense_schedule const schedule{{17, 5, 8}, 12};
  REQUIRE(schedule.count() == 85);
  for (std::int32_t i = 0; i < schedule.count(); ++i) {
    gemm_work_item const work = schedule.at(i);
    CHECK(work.row == schedule.order.at(i).row);
    CHECK(work.column == schedule.order.at(i).column);
    CHECK(work.k_tiles == 12);
    CHECK(schedule.k_tile(work.first + 11) == 11);
  }
}

TEST_CASE("a listed schedule has the work items and k-tiles of its lists", "[host]") {
  std::vector<std::int32_t> const list{4, 7, 9};
  std::vector<gemm_work_item> const work_items{{1, 2, 1, 2}, {0, 0, 0, 1}, {5, 5, 0, 0}};
  listed_schedule const schedule{work_items.data(), 3, list.data()};
  CHECK(schedule.count() == 3);
  CHECK(schedule.at(0).column == 2);
  CHECK(schedule.k_tile(schedule.at(0).first + 1) == 9);
  CHECK(schedule.at(2).k_tiles == 0);
}
