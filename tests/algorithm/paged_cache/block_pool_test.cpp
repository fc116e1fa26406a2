// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/algorithm/paged_cache/block_pool.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("blocks are taken from the lowest on, and come back when nobody uses them", "[host]") {
  block_pool pool(3);
  CHECK(pool.take() == 0);
  CHECK(pool.take() == 1);
  pool.share(0);
  CHECK(pool.users(0) == 2);
  pool.give_back(0);
  CHECK(pool.free() == 1);
  CHECK(pool.take() == 2);
  pool.give_back(1);
  pool.give_back(0);
  CHECK(pool.free() == 2);
  CHECK(pool.take() == 0);
  CHECK(pool.take() == 1);
}

TEST_CASE("a pool refuses what makes no sense, with both numbers", "[host]") {
  block_pool pool(1);
  CHECK_THROWS_AS(pool.share(0), value_error);
  CHECK_THROWS_AS(pool.give_back(0), value_error);
  CHECK_THROWS_AS(pool.give_back(1), value_error);
  CHECK_THROWS_AS(pool.users(-1), value_error);
  CHECK(pool.take() == 0);
  CHECK_THROWS_WITH(pool.take(), "block_pool.take: 1 blocks are in use, of 1");
  CHECK_THROWS_AS(block_pool(std::int64_t{1} << 40), shape_error);
}
