// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/view/cache_sequences.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("without lists a sequence has the slot of its own number and no tokens", "[host]") {
  std::vector<std::int32_t> const blocks(15);
  cache_sequences const s{{blocks.data(), {3, 5}}};
  CHECK(s.size() == 3);
  for (std::int64_t sequence = 0; sequence < 3; ++sequence) {
    CHECK(s.slot(sequence) == sequence);
    CHECK(s.length(sequence) == 0);
  }
}

TEST_CASE("slots and lengths are as they are listed, even impossible ones", "[host]") {
  std::vector<std::int32_t> const lengths{1000, -200, 0};
  std::vector<std::int32_t> const slots{4, 0, -2};
  cache_sequences s;
  s.blocks = {nullptr, {3, 5}};
  s.lengths = lengths;
  s.slots = slots;
  CHECK(s.slot(0) == 4);
  CHECK(s.slot(2) == -2);
  CHECK(s.length(0) == 1000);
  CHECK(s.length(1) == -200);
}

TEST_CASE("a batch has as many sequences as block tables, unless it is told otherwise", "[host]") {
  cache_sequences s;
  CHECK(s.size() == 0);
  s.blocks = {nullptr, {3, 5}};
  CHECK(s.size() == 3);
  s.count = 0;
  CHECK(s.size() == 0);
  s.count = 2;
  CHECK(s.size() == 2);
  s.count = cache_sequences::all;
  CHECK(s.size() == 3);
}
