// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Memory whose elements have addresses but no values.
struct some_memory {
  cache_memory<bfloat16> memory{{32, 4, 2, 2, 2}, 3, 128, 5, 2, 1000, 4, {}, {}, {}, {}, {}, {}};
  std::vector<bfloat16> tail;
  std::vector<bfloat16> rows;
  std::vector<std::byte> pages;

  some_memory(std::int64_t slots, std::int64_t blocks)
      : tail(static_cast<std::size_t>(memory.tail_values(slots))),
        rows(static_cast<std::size_t>(memory.row_values(slots))),
        pages(static_cast<std::size_t>(memory.page_bytes(blocks))) {
    memory.tail = tail.data();
    memory.rows = rows.data();
    memory.pages = pages.data();
  }
};

/// Checks that every `step`-th address from `first` on was found exactly once.
template <class T>
void check_pointers(std::set<T*> const& found, T* first, std::int64_t step, std::size_t count) {
  REQUIRE(found.size() == count);
  for (T* row : found) {
    REQUIRE(row == first);
    first += step;
  }
}

}  // namespace

TEST_CASE("keys and values of a tail, and retained ones, fill their memory", "[host]") {
  some_memory const p(2, 4);
  std::set<bfloat16*> tail;
  std::set<bfloat16*> rows;
  for (int layer = 0; layer < 2; ++layer) {
    for (int part : {key_part, value_part}) {
      for (std::int64_t slot = 0; slot < 2; ++slot) {
        for (std::int64_t head = 0; head < 3; ++head) {
          for (std::int64_t token = 1000; token < 1000 + 256; ++token) {  // the window, an open page, and one more
            tail.insert(p.memory.tail_row(slot, layer, part, head, token));
          }
          for (std::int64_t row = 0; row < 5; ++row) {
            rows.insert(p.memory.retained_row(slot, head, row, layer, part));
          }
        }
      }
    }
  }
  check_pointers(tail, p.memory.tail, 32, p.tail.size() / 32);
  check_pointers(rows, p.memory.rows, 32, p.rows.size() / 32);
  std::set<std::byte*> pages;
  for (std::int64_t block = 0; block < 4; ++block) {
    for (std::int64_t head = 0; head < 3; ++head) {
      pages.insert(p.memory.page(block, head));
    }
  }
  check_pointers(pages, p.memory.pages, p.memory.format.bytes(), 12);
}

TEST_CASE("tokens of a tail come back to their rows after all of its blocks", "[host]") {
  some_memory const p(2, 1);
  REQUIRE(p.memory.tail_blocks() == 4);
  for (std::int64_t token : {0, 63, 64, 255}) {
    auto* const row = p.memory.tail_row(1, 1, value_part, 2, token);
    CHECK(p.memory.tail_row(1, 1, value_part, 2, token + 256) == row);
    CHECK(p.memory.tail_row(1, 1, value_part, 2, token + 128) != row);
  }
  CHECK(p.memory.tail_row(0, 1, key_part, 2, 70) - p.memory.tail_row(0, 1, key_part, 2, 6) ==
        p.memory.tail_block_stride());
  cache_memory<bfloat16> without = p.memory;
  without.window = 0;
  CHECK(without.tail_blocks() == 2);
}

TEST_CASE("pages that follow from lengths stay within block tables, and listed ones are as they are listed", "[host]") {
  std::vector<std::int32_t> const pages{-3, 2, 9};
  cache_sequences s;
  s.blocks = {nullptr, {3, 5}};
  CHECK(sealed_pages(s, 0, 128, 128) == 0);
  CHECK(sealed_pages(s, 0, 191, 128) == 0);
  CHECK(sealed_pages(s, 0, 192, 128) == 1);
  CHECK(sealed_pages(s, 0, 64 * 5 + 128, 128) == 5);
  CHECK(sealed_pages(s, 0, 64 * 6 + 128, 128) == 5);
  s.pages = pages;
  CHECK(sealed_pages(s, 0, 1000, 0) == -3);
  CHECK(sealed_pages(s, 1, 0, 0) == 2);
  CHECK(sealed_pages(s, 2, 0, 0) == 9);
}

TEST_CASE("what of a sequence cannot be is named, with its number and its limit", "[host]") {
  some_memory const p(2, 4);  // at most 1000 tokens, a tail of 256
  struct expected {
    sequence_extent has;
    status_code code;
    std::int64_t value;
    std::int64_t limit;
  };
  status_code const none{};
  for (expected const& one : {expected{{1, 256, 200, 3, 3}, none, 0, 0},
                              {{-1, 0, 0, -7, -7}, none, 0, 0},  // a sequence of no tokens may have any slot and pages
                              {{0, -1, 0, 0, 0}, status_code::bad_length, -1, 1000},
                              {{0, 1001, 1000, 15, 15}, status_code::bad_length, 1001, 1000},
                              {{0, 1000, 1000, 15, 15}, none, 0, 0},
                              {{-1, 1, 0, 0, 0}, status_code::bad_slot, -1, 2},
                              {{2, 1, 0, 0, 0}, status_code::bad_slot, 2, 2},
                              {{0, 300, 300, -1, -1}, status_code::bad_page_count, -1, 4},
                              {{0, 300, 300, 5, 5}, status_code::bad_page_count, 5, 4},
                              {{0, 400, 250, 4, 4}, status_code::bad_page_count, 4, 3},
                              {{0, 1000, 1000, 17, 17}, status_code::bad_page_count, 17, 15},
                              {{0, 257, 257, 0, 0}, status_code::full_tail, 257, 256},
                              {{0, 256, 256, 0, 0}, none, 0, 0},
                              {{0, 400, 100, 0, 2}, status_code::full_tail, 272, 256},
                              {{0, 400, 100, 0, 3}, none, 0, 0}}) {
    CAPTURE(one.has.slot, one.has.length, one.has.before, one.has.sealed, one.has.end);
    std::int64_t const table = one.has.length == 1000 ? 16 : 5;
    std::int64_t const most_sealed = std::min(one.has.before / 64, table);
    sequence_fault const found = p.memory.fault_of(one.has, p.memory.most_tokens, most_sealed);
    CHECK(found.code == one.code);
    CHECK(found.is_none() == (one.code == none));
    CHECK(found.value == one.value);
    CHECK(found.limit == one.limit);
  }
  for (std::int64_t const block : {-1, 0, 3, 4}) {
    CHECK(p.memory.fault_of_block(block).is_none() == (block == 0 || block == 3));
  }
  CHECK(p.memory.fault_of_block(4).limit == 4);
  CHECK(p.memory.fault_of_block(-1).value == -1);
}

TEST_CASE("a threshold that is not known is one that no angle reaches", "[host]") {
  some_memory p(2, 4);
  std::vector<float> thresholds(12, bit_cast<float>(0x7fffffffU));
  thresholds[2 * 4 + 1] = 0.5F;
  p.memory.thresholds = thresholds.data();
  CHECK(p.memory.threshold(1, 1, value_part) == 0.5F);
  CHECK(p.memory.threshold(1, 1, key_part) == no_threshold);
}

TEST_CASE("a call seals the pages that its tokens complete, no more than there is room for", "[host]") {
  std::vector<std::int32_t> const lengths{64 * 3, 64 * 3 - 1, 10, 64 * 9, 0};
  std::vector<std::int32_t> const fresh{64, 64, 50, 64 * 9, 0};
  cache_source<bfloat16> source{};
  source.memory.window = 64;
  source.memory.slot_count = 5;
  source.memory.most_tokens = 1000;
  source.sequences.blocks = {nullptr, {5, 6}};
  source.sequences.lengths = lengths;
  source.sequences.count = 5;
  source.tokens = 64 * 9;
  source.most_pages = 8;
  source.new_tokens = fresh;
  auto const check = [&](std::int64_t sequence, std::int64_t before, std::int64_t first, std::int64_t end) {
    CAPTURE(sequence);
    CHECK(source.before(sequence) == before);
    CHECK(source.after(sequence) == lengths[static_cast<std::size_t>(sequence)]);
    CHECK(source.first_page(sequence) == first);
    CHECK(source.end_page(sequence) == end);
  };
  check(0, 128, 1, 2);
  check(1, 127, 0, 1);
  check(2, 0, 0, 0);  // more new tokens than the sequence has
  CHECK(source.fault(2).code == status_code::bad_new_tokens);
  CHECK(source.fault(2).value == 50);
  CHECK(source.fault(2).limit == 10);
  check(3, 0, 0, 6);  // eight pages, but a block table of six
  check(4, 0, 0, 0);
  CHECK(source.fault(3).is_none());
  source.most_pages = 2;
  CHECK(source.fault(3).code == status_code::full_tail);  // seven pages would stay in its tail
  check(3, 0, 0, 0);
  source.new_tokens = {};
  CHECK(source.before(0) == 0);
  CHECK(source.fault(0).code == status_code::bad_new_tokens);
  CHECK(source.fault(4).is_none());
}

TEST_CASE("pieces of rows are read and written wherever they begin, at any stride", "[host]") {
  using piece = row_chunk<bfloat16>;
  for (std::int64_t const first : {0, 1, 3, 8}) {
    for (std::int64_t const stride : {1, 2, 5}) {
      alignas(16) bfloat16 from[128];
      alignas(16) bfloat16 to[64];
      for (int i = 0; i < 128; ++i) {
        from[i] = bfloat16{static_cast<std::uint16_t>(1000 + i)};
      }
      for (auto& one : to) {
        one = bfloat16{7};
      }
      piece const found = piece::of({from + first, stride}, 1);
      found.store_to(to + first, 2);
      for (int i = 0; i < 64; ++i) {
        std::int64_t const channel = i - first - 16;
        bool const is_written = channel >= 0 && channel < 8;
        CAPTURE(first, stride, i);
        REQUIRE(to[i].bits == (is_written ? 1000 + first + (8 + channel) * stride : 7));
      }
    }
  }
}
