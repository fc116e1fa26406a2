// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/algorithm/weights/parameter_store_types.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("the total of a store's bytes counts each use once", "[host]") {
  STATIC_REQUIRE(sizeof(parameter_store_bytes) == 5 * sizeof(std::int64_t));  // so that a new use is added here, too
  CHECK(parameter_store_bytes{}.total() == 0);
  parameter_store_bytes const bytes{
      .streams = 1, .scratch = 20, .staging = 300, .overflow = 4000, .workspace = std::int64_t{5} << 40};
  CHECK(bytes.total() == 4321 + (std::int64_t{5} << 40));
}
