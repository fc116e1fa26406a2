// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>

#include <tessera/select/chunk_budget.hpp>

#include "support/catch.hpp"

using tessera::chunk_budget;

TEST_CASE("a fixed number of chunks is taken, or all that there are, and never fewer than none", "[host]") {
  static_assert(chunk_budget(16, 100) == 16);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(chunk_budget(16, 16) == 16);
  CHECK(chunk_budget(16, 7) == 7);
  CHECK(chunk_budget(16, 0) == 0);
  CHECK(chunk_budget(0, 7) == 0);
  CHECK(chunk_budget(-3, 7) == 0);
  CHECK(chunk_budget(most, 7) == 7);
  CHECK(chunk_budget(7, most) == 7);
}
