// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/entropy/frequency_table.hpp>

#include "support/catch.hpp"

using namespace tessera;

using model = frequency_model<12>;
using kind = model::kind;

TEST_CASE("a table is valid when its frequencies add up and none is all of it", "[host]") {
  frequency_table<12> table{};
  CHECK_FALSE(table.is_valid());
  table.frequency[3] = 4096;
  CHECK_FALSE(table.is_valid());
  table.frequency[3] = 4095;
  CHECK_FALSE(table.is_valid());
  table.frequency[255] = 1;
  CHECK(table.is_valid());
  table.frequency[0] = 1;
  CHECK_FALSE(table.is_valid());
  // A sum that is right only after it wraps around sixteen bits.
  frequency_table<8> wrapping{};
  for (auto& frequency : wrapping.frequency) {
    frequency = 255;
  }
  CHECK_FALSE(wrapping.is_valid());
}

TEST_CASE("a code that occurs has a share, and so has the escape", "[host]") {
  CHECK(model::share(1, std::uint64_t{1} << 47, 0) == 1);
  CHECK(model::share(0, 100, 0) == 0);
  CHECK(model::share(0, 100, exponent_window::escape_code) == 1);
  CHECK(model::share(0, 0, 0) == 1);
  CHECK(model::share(50, 100, 3) == 32768);
  CHECK(model::share(100, 100, 3) == 65536);
  CHECK(model::share(std::uint64_t{1} << 46, std::uint64_t{1} << 47, 3) == 32768);
}

TEST_CASE("pairs rarer than one in 2^17 are absent, save the escapes, and those rarer than one slot get one",
          "[host]") {
  std::uint64_t const all = std::uint64_t{1} << 32;
  CHECK(model::classify(0, (all >> 17) - 1, all) == kind::absent);
  CHECK(model::classify(0, all >> 17, all) == kind::one);
  CHECK(model::classify(0, (all >> 12) - 1, all) == kind::one);
  CHECK(model::classify(0, all >> 12, all) == kind::proportional);
  CHECK(model::classify(escape_pair, 1, all) == kind::one);
}

TEST_CASE("proportional frequencies are rounded half up and at least one", "[host]") {
  CHECK(model::rounded(1, 3, 2) == 2);
  CHECK(model::rounded(1, 5, 4) == 1);
  CHECK(model::rounded(1, 1, 1000) == 1);
  CHECK(model::rounded(999, 4096, 1000) == 4092);
}

TEST_CASE("the symbol of a pair has the first weight's code in its low half", "[host]") {
  CHECK(pair_symbol(1, 2) == 0x21);
  CHECK(pair_symbol(exponent_window::escape_code, exponent_window::escape_code) == escape_pair);
}
