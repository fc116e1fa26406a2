// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/view/attention_block_list.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("lists of tiles are no longer than their room", "[host]") {
  std::vector<std::int32_t> const counts{-5, 0, 3, 4, 5, 0x7fffffff};
  std::vector<std::int32_t> const tiles(6 * 4);
  attention_block_list const list{{counts.data(), {1, 2, 3}}, {tiles.data(), {1, 2, 3, 4}}};
  CHECK(list.count(0, 0, 0) == 0);
  CHECK(list.count(0, 0, 1) == 0);
  CHECK(list.count(0, 0, 2) == 3);
  CHECK(list.count(0, 1, 0) == 4);
  CHECK(list.count(0, 1, 1) == 4);
  CHECK(list.count(0, 1, 2) == 4);
}
