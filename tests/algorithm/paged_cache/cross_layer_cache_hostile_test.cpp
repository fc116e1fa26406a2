// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>

#include "support/catch.hpp"
#include "support/hostile_sequences.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("slots, lengths, counts and blocks that cannot be are reported, and nothing else happens", "[host]") {
  check_hostile_lists(cpu{.threads = 1}, 64);
}

TEST_CASE("sequences whose number is left out are as many as there are block tables", "[host]") {
  listed_tokens const tokens(200, 64);
  listed_cache<cpu> cache(cpu{.threads = 1}, 64);
  cache_lists lists;
  lists.lengths = lists.fresh = {200, 200};
  cache.append(lists, tokens, 0, 200);
  lists.pages = {2, 2};
  CHECK(cache.statistics(lists).tokens == 400);
  std::vector<float> found;
  cache.restore(lists, 0, 200, found);
  for (float const value : found) {
    REQUIRE(value != -77.0F);
  }
}

TEST_CASE("a sequence of no tokens may have any slot, count and blocks", "[host]") {
  listed_tokens const tokens(200, 64);
  listed_cache<cpu> cache(cpu{.threads = 1}, 64);
  cache_lists lists;
  lists.blocks = {0, 1, 2, -1, -1, 99, -7, INT32_MAX};
  lists.slots = {0, -1};
  lists.lengths = lists.fresh = {200, 0};
  cache.append(lists, tokens, 0, 200);
  lists.pages = {2, 0};
  std::vector<float> found;
  cache.attend(lists, 2, found);
  for (std::size_t i = 4 * 64; i < 8 * 64; ++i) {
    REQUIRE(found[i] == 0.0F);
  }
  CHECK(cache.statistics(lists).tokens == 200);
}

TEST_CASE("what is read on the host refuses lists that cannot be, too", "[host]") {
  listed_tokens const tokens(200, 64);
  listed_cache<cpu> cache(cpu{.threads = 1}, 64);
  cache_lists lists;
  lists.lengths = lists.fresh = {200, 200};
  cache.append(lists, tokens, 0, 200);
  lists.pages = {2, 2};
  auto const complaint = [&](std::vector<std::int32_t> cache_lists::*list, std::size_t index, std::int32_t value) {
    cache_lists bad = lists;
    (bad.*list)[index] = value;
    return complaint_of([&] { static_cast<void>(cache.saved(bad, 1)); }) + "; " +
           complaint_of([&] { static_cast<void>(cache.statistics(bad)); });
  };
  CHECK_THAT(complaint(&cache_lists::slots, 1, 3), contains("save_cache: slot 3 of sequence 1 is none of 3; ") &&
                                                       contains("cache_bytes: slot 3 of sequence 1"));
  CHECK_THAT(complaint(&cache_lists::slots, 1, -1), contains("slot -1"));
  CHECK_THAT(complaint(&cache_lists::lengths, 1, 641),
             contains("save_cache: sequence 1 has 641 tokens but may have 640"));
  CHECK_THAT(complaint(&cache_lists::lengths, 1, -2), contains("has -2 tokens"));
  CHECK_THAT(complaint(&cache_lists::pages, 1, 4), contains("has 4 sealed pages but may have 3"));
  CHECK_THAT(complaint(&cache_lists::pages, 1, -1), contains("has -1 sealed pages"));
  CHECK_THAT(complaint(&cache_lists::blocks, 5, 12), contains("save_cache: block 12 of sequence 1 is none of 12; ") &&
                                                         contains("cache_bytes: block 12 is none of 12"));
}
