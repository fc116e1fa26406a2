// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <set>

#include <tessera/tile/codes/value_slot.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("lanes of a tensor core product find their weights' values as neighbours", "[host]") {
  for (int first : {0, 16, 112, 4096}) {
    std::set<int> slots;
    for (int lane = 0; lane < 4; ++lane) {
      int const tokens[] = {2 * lane, 2 * lane + 1, 8 + 2 * lane, 8 + 2 * lane + 1};
      for (int i = 0; i < 4; ++i) {
        CHECK(value_slot(first + tokens[i]) == first + 4 * lane + i);
        slots.insert(value_slot(first + tokens[i]));
      }
    }
    CHECK(slots.size() == 16);
    CHECK((*slots.begin() == first && *slots.rbegin() == first + 15));
  }
}
