// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/reduce/sum.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"

using tessera::sum_reducer;
using tessera::testing::check_laws;

TEST_CASE("sums of integers keep the laws exactly", "[host]") {
  CHECK(check_laws<sum_reducer<std::int64_t>>({5, -7, 1LL << 60, 3}).text().empty());
  CHECK(check_laws<sum_reducer<std::uint8_t>>({200, 100, 255}).text().empty());
}

TEST_CASE("sums of floats keep the laws up to rounding and no further", "[host]") {
  auto const close = [](float a, float b) { return tessera::testing::is_close(a, b, 1e-6); };
  CHECK(check_laws<sum_reducer<float>>({0.1F, 0.2F, 0.3F, 1e3F, -0.7F}, close).text().empty());
  CHECK(check_laws<sum_reducer<float>>({1.0F, 1e8F, -1e8F}).mentions("merge is associative"));
}
