// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/tuning/attention/forward_by_warps.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("two sets of rows are for many long sequences without a window") {
  constexpr forward_by_warps_tuning tuning;
  constexpr std::int64_t rows = 2 * 16 * 16384;
  CHECK(tuning(rows, 16384, false, 132).sets == 2);
  CHECK(tuning(rows, 8192, false, 132).sets == 2);
  CHECK(tuning(rows, 8191, false, 132).sets == 1);
  CHECK(tuning(rows, 16384, true, 132).sets == 1);
  CHECK(tuning(7 * 256 * 132, 16384, false, 132).sets == 2);
  CHECK(tuning(7 * 256 * 132 - 1, 16384, false, 132).sets == 1);
  CHECK(tuning(0, 0, false, 132).sets == 1);
}
