// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <random>

#include <tessera/core/divisor.hpp>

#include "support/catch.hpp"

using tessera::divisor;

TEST_CASE("a divisor divides as / does", "[host]") {
  constexpr std::int32_t most = 0x7fffffff;
  std::mt19937 random(5);
  std::int64_t wrong = 0;
  auto const check = [&](std::int32_t number, std::int32_t by) {
    wrong += number >= 0 && number / divisor(by) != number / by ? 1 : 0;
  };
  for (int round = 0; round < 20000; ++round) {
    std::int32_t by = static_cast<std::int32_t>(random() >> (1 + random() % 31)) | 1;
    if (round < 96) {
      std::int32_t const power = std::int32_t{1} << (round / 3 < 31 ? round / 3 : 30);
      by = power + (power > 2 ? round % 3 - 1 : 0);
    }
    CAPTURE(by);
    REQUIRE(divisor(by).value() == by);
    auto const times = static_cast<std::int32_t>(random() % (static_cast<std::uint32_t>(most / by) + 1));
    std::int32_t const last = most / by * by;
    for (std::int32_t const number : {0, 1, by - 1, by, times * by, times * by - 1, last - 1, last, most - 1, most,
                                      static_cast<std::int32_t>(random() >> 1)}) {
      check(number, by);
    }
  }
  CHECK(wrong == 0);
  CHECK(17 / divisor{} == 17);
  CHECK(most / divisor{} == most);
  CHECK(most / divisor(0) == most);
}
