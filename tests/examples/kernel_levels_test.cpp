// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/testing/adversary.hpp>

#include "../../examples/kernel_levels/level_check.hpp"
#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("the levels of the example keep the rules for programs", "[host]") {
  using namespace tessera_examples;
  testing::adversary const exec{.seed = 6};
  product_data const data = product_data::made(3, 130, 200);
  text_table table({"level", "device", "rows", "columns", "depth", "error / bound", ""}, 2);
  auto const check = [&](auto const& level, product_there<testing::adversary> const& there) {
    CAPTURE(level.name);
    CHECK(check_level(exec, "adversary", data, level, there, table));
  };
  product_there<testing::adversary> const plain(exec, data);
  check(plain_level{plain.whole()}, plain);
  product_there<testing::adversary> const tiled(exec, data);
  check(tiled_level{{tiled.whole()}}, tiled);
  product_there<testing::adversary> const pipelined(exec, data);
  check(fetched_level{{pipelined.whole()}}, pipelined);
  product_there<testing::adversary> const ring(exec, data);
  check(ring_level{{ring.whole()}}, ring);
}
