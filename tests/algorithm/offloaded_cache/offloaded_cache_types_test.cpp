// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/algorithm/offloaded_cache/offloaded_cache_types.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("hits are a share of all selected chunks, not of heads", "[host]") {
  offload_statistics found;
  CHECK(found.hit_rate() == 0.0);
  found.usage.resize(3);
  CHECK(found.hit_rate() == 0.0);
  found.usage[0].selected = 1;
  found.usage[0].resident = 1;
  found.usage[2].selected = 7;
  found.usage[2].resident = 1;
  CHECK(found.hit_rate() == 0.25);
  found.usage[1].selected = std::int64_t{1} << 40;  // beyond 32 bits
  found.usage[1].resident = std::int64_t{1} << 40;
  CHECK(found.hit_rate() > 0.999999);
  CHECK(found.hit_rate() < 1.0);
}
