// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/view/sequence_starts.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("tokens of sequences one behind the other are within all tokens, or nowhere", "[host]") {
  sequence_starts const apart;
  CHECK(apart.row_of(3, 17) == 17);
  std::vector<std::int32_t> const first{0, 10, 10, -3, 0x7fffffff};
  sequence_starts const packed{first, 20};
  CHECK(packed.row_of(0, 0) == 0);
  CHECK(packed.row_of(1, 9) == 19);
  CHECK(packed.row_of(1, 10) == -1);
  CHECK(packed.row_of(2, 0) == 10);
  CHECK(packed.row_of(3, 2) == -1);
  CHECK(packed.row_of(3, 3) == -1);  // its sequence begins before 0
  CHECK(packed.row_of(4, 0) == -1);
  CHECK(packed.row_of(4, 100) == -1);  // beyond 31 bits
}
