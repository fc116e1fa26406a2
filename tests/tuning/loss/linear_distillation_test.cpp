// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <utility>

#include <tessera/tuning/loss/linear_distillation.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a part of distillation has a multiple of 128 entries between 3/4 of the most and the most", "[host]") {
  for (std::int64_t const tokens : {0, 1, 300, 8192, 100000}) {
    for (std::int64_t const channels : {1, 576, 2304, 16384}) {
      for (std::int64_t most = 128; most <= 8192; most += 100) {
        std::int64_t const found = distillation_part_entries(tokens, channels, most);
        CAPTURE(tokens, channels, most);
        CHECK(found % 128 == 0);
        CHECK(found <= most);
        CHECK((found >= most - most / 4 || found == most / 128 * 128));
      }
    }
  }
}

TEST_CASE("parts of tokens fit into the budget, beside what is kept", "[host]") {
  constexpr std::int64_t mebibyte = 1 << 20;
  constexpr std::int64_t logits = 128256 * 8;
  constexpr std::int64_t gradient = 128256 * 2;
  auto const choose = [](std::int64_t tokens, std::int64_t budget, bool reads_twice, bool can_keep = true) {
    auto const found = choose_token_parts({tokens, logits, can_keep ? gradient : 0, budget, reads_twice});
    CHECK((found.kept == 0 || found.kept == tokens || found.kept % found.tokens == 0));
    CHECK(found.tokens * logits + found.kept * gradient <= budget);
    return std::pair(found.tokens, found.kept);
  };
  using parts = std::pair<std::int64_t, std::int64_t>;
  CHECK(choose(8192, 100 * mebibyte, true) == parts(0, 0));
  CHECK(choose(8192, 400 * mebibyte, true) == parts(256, 0));
  CHECK(choose(8192, 400 * mebibyte, false) == parts(0, 0));  // one read needs no parts of tokens
  CHECK(choose(8192, 768 * mebibyte, false) == parts(512, 1024));
  CHECK(choose(8192, 768 * mebibyte, true, false) == parts(768, 0));
  CHECK(choose(8192, 3840 * mebibyte, false) == parts(1792, 8192));
  CHECK(choose(8192, 1 << 20, true) == parts(0, 0));
  CHECK(choose(8192, std::int64_t{1} << 40, true) == parts(8192, 8192));
  CHECK(choose(100, 200 * mebibyte, false) == parts(100, 100));
  CHECK(choose(0, std::int64_t{1} << 40, true) == parts(0, 0));
  for (std::int64_t tokens = 1; tokens < 3000; tokens += 97) {
    for (std::int64_t budget = 0; budget < 4096 * mebibyte; budget += 133 * mebibyte) {
      choose(tokens, budget, true);
    }
  }
}

TEST_CASE("entries are chosen so that last waves are full on 132 multiprocessors", "[host]") {
  // 14 rows of tiles of entries times 9 of channels are 126 of 132 places in two waves; 15 would need three.
  CHECK(distillation_part_entries(8192, 2304, 3840) == 3584);
}
