// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/paged_cache/cache_bytes.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera_test::contains;

namespace {

constexpr std::int64_t window = 64;
constexpr std::int64_t blocks = 9;
cache_extents const extents{.slots = 4, .tokens = 512, .blocks = blocks, .heads = 2, .channels = 64, .window = window};

/// Counters of a part whose pages and tokens are never read.
struct counted_part {
  cache_page_format format;
  std::vector<std::uint32_t> taken;
  std::vector<std::uint32_t> refused;

  explicit counted_part(cache_page_format const& of) : format(of) {
    for (std::uint32_t i = 0; i < 8; ++i) {
      taken.push_back(10 + i);
      refused.push_back(100 * i);
    }
  }
  cache_memory<bfloat16> memory() {
    return {format, 2, window, 50, 4, 512, blocks, nullptr, nullptr, nullptr, taken.data(), refused.data(), nullptr};
  }
};

/// Three sequences with block tables of four blocks.
struct sequences_of_three {
  std::vector<std::int32_t> table;
  std::vector<std::int32_t> lengths{64 + 2 * 64, 64 + 63, 300};
  std::vector<std::int32_t> slots{3, 0, 1};
  std::vector<std::int32_t> pages{1, 0, 2};

  cache_sequences views(bool has_lists) const {
    cache_sequences made;
    made.blocks = {table.data(), {3, 4}};
    made.lengths = {lengths.data(), 3};
    made.count = 3;
    if (has_lists) {
      made.slots = {slots.data(), 3};
      made.pages = {pages.data(), 3};
    }
    return made;
  }
};

cache_bytes count(std::vector<cache_memory<bfloat16>> const& parts, cache_sequences const& s) {
  return count_cache_bytes(cpu{.threads = 1}, extents, parts, s);
}

}  // namespace

TEST_CASE("what pages have is all of their bytes, for each format", "[host]") {
  for (int channels : {64, 96, 128, 256}) {
    for (int key_bits : {2, 3, 4, 8}) {
      for (int value_bits : {2, 3, 4, 8}) {
        for (int layers : {1, 2}) {
          cache_page_format const format{channels, key_bits, value_bits, channels / 32, layers};
          cache_bytes found;
          found.add_pages(format, 5);
          CAPTURE(channels, key_bits, value_bits, layers);
          CHECK(found.used() == 5 * format.bytes());
          CHECK(found.codes == 5 * 8 * channels * (key_bits + value_bits));
          CHECK(found.headers == 5 * 32);
          found.add_pages(format, 0);
          CHECK(found.used() == 5 * format.bytes());
        }
      }
    }
  }
}

TEST_CASE("nothing in use has no ratio", "[host]") {
  cache_bytes nothing;
  CHECK(nothing.used() == 0);
  CHECK(nothing.ratio() == 0.0);
  nothing.uncompressed = 100;
  CHECK(nothing.ratio() == 0.0);
  nothing.tail = 40;
  CHECK(nothing.ratio() == 2.5);
  CHECK_THAT(nothing.describe(), contains("tail 40") && contains("40 bytes for 100"));
}

TEST_CASE("bytes of sequences are those of their blocks, tails and slots", "[host]") {
  counted_part one({64, 4, 4, 1, 1});
  counted_part pair({64, 8, 2, 2, 2});
  sequences_of_three s;
  s.table = {5, 2, -1, -1, -1, -1, -1, -1, 0, 8, 1, -1};  // blocks of pages that are not sealed are not read
  cache_bytes const found = count({one.memory(), pair.memory()}, s.views(false));
  std::int64_t const sealed[] = {2, 0, 3};
  std::int64_t const of_row[] = {2 * 64 * 2, 2 * 2 * 64 * 2};  // bytes of a token of a head, in either part
  std::int64_t const open = 64 + 127 + (300 - 3 * 64);
  CHECK(found.tokens == 192 + 127 + 300);
  CHECK(found.codes + found.scales + found.norms + found.headers ==
        5 * 2 * (one.format.bytes() + std::int64_t{pair.format.bytes()}));
  CHECK(found.tail == open * 2 * (of_row[0] + of_row[1]));
  CHECK(found.uncompressed == found.tokens * 2 * (of_row[0] + of_row[1]));
  CHECK(found.retained_tokens == 2 * (10 + 11 + 12 + 13 + 14 + 15));
  CHECK(found.refused_tokens == 2 * (0 + 100 + 200 + 300 + 400 + 500));
  CHECK(found.retained == 75 * (of_row[0] + of_row[1]));
  CHECK(found.bookkeeping == 4 * (sealed[0] + sealed[1] + sealed[2] + 3 * 3) + 2 * 3 * 2 * 16);
}

TEST_CASE("pages that sequences share count once, and lists of slots and pages count", "[host]") {
  counted_part part({64, 4, 4, 1, 2});
  sequences_of_three s;
  s.table = {5, -1, -1, -1, -1, -1, -1, -1, 5, 8, -1, -1};
  cache_bytes const found = count({part.memory()}, s.views(true));
  CHECK(found.headers == 2 * 2 * 32);
  CHECK(found.retained_tokens == 16 + 17 + 10 + 11 + 12 + 13);
  CHECK(found.tail == (192 - 64 + 127 + 300 - 128) * std::int64_t{2 * 2 * 2 * 64 * 2});
}

TEST_CASE("a block that there is not is named", "[host]") {
  counted_part part({64, 4, 4, 1, 1});
  for (std::int32_t const block : {-1, 9, 0x7fffffff}) {
    sequences_of_three s;
    s.table = {5, block, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3};
    CHECK_THROWS_WITH(count({part.memory()}, s.views(false)),
                      "cache_bytes: block " + std::to_string(block) + " is none of 9");
    CHECK_THROWS_AS(count({part.memory()}, s.views(false)), value_error);
    CHECK_NOTHROW(count({part.memory()}, s.views(true)));
  }
}
