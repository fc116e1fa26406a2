// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/tuning/loss/linear_distillation.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a part of distillation has a multiple of 128 entries between 3/4 of the most and the most", "[host]") {
  for (std::int64_t const tokens : {0, 1, 300, 8192, 100000}) {
    for (std::int64_t const channels : {1, 576, 2304, 16384}) {
      for (std::int64_t most = 128; most <= 8192; most += 100) {
        std::int64_t const found = distillation_part_entries(tokens, channels, most);
        CAPTURE(tokens, channels, most);
        CHECK(found % 128 == 0);
        CHECK(found <= most);
        CHECK((found >= most - most / 4 || found == most / 128 * 128));
      }
    }
  }
}

TEST_CASE("entries are chosen so that last waves are full on 132 multiprocessors", "[host]") {
  // 14 rows of tiles of entries times 9 of channels are 126 of 132 places in two waves; 15 would need three.
  CHECK(distillation_part_entries(8192, 2304, 3840) == 3584);
}
