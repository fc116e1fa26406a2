// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/cache_slots.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr std::int64_t slots = 4;
constexpr std::int64_t heads = 35;  // more than the lanes of a group

/// Slots in which everything is known, and each element another.
struct known_slots {
  cache_memory<bfloat16> memory{{32, 4, 4, 1, 1}, heads, 0, 5, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  std::vector<bfloat16> tail;
  std::vector<std::uint32_t> counts;
  std::vector<std::uint32_t> refused;
  std::vector<float> thresholds;

  known_slots() : tail(static_cast<std::size_t>(memory.tail_values(slots))) {
    for (std::size_t i = 0; i < tail.size(); ++i) {
      tail[i] = bfloat16{static_cast<std::uint16_t>(i * 7919 / 16)};
    }
    for (std::uint32_t i = 0; i < slots * heads; ++i) {
      counts.push_back(1000 + i);
      refused.push_back(2000 + i);
      thresholds.push_back(static_cast<float>(2 * i));
      thresholds.push_back(static_cast<float>(2 * i + 1));
    }
    memory.tail = tail.data();
    memory.row_counts = counts.data();
    memory.refused_rows = refused.data();
    memory.thresholds = thresholds.data();
  }
  bool has_tail_of(std::int64_t slot, known_slots const& other, std::int64_t other_slot) const {
    std::int64_t const size = memory.tail_values(1);
    for (std::int64_t i = 0; i < size; ++i) {
      if (!(memory.tail[slot * size + i] == other.memory.tail[other_slot * size + i])) {
        return false;
      }
    }
    return true;
  }
};

template <class Program>
void run(Program const& program) {
  cpu{.threads = 1}.run(program, program.groups());
}

}  // namespace

TEST_CASE("slots that are reset retain nothing and know no threshold, and the others keep all", "[host]") {
  std::vector<std::int32_t> const named{2, 0};
  for (bool const has_names : {true, false}) {
    known_slots found;
    known_slots const before;
    run(reset_slots<bfloat16>{found.memory,
                              has_names ? array_view<std::int32_t const>(named) : array_view<std::int32_t const>(), 2});
    for (std::size_t i = 0; i < found.counts.size(); ++i) {
      std::size_t const slot = i / heads;
      bool const is_reset = slot == 0 || slot == (has_names ? 2U : 1U);
      CAPTURE(has_names, i);
      REQUIRE(found.counts[i] == (is_reset ? 0 : before.counts[i]));
      REQUIRE(found.refused[i] == (is_reset ? 0 : before.refused[i]));
      for (std::size_t part : {0U, 1U}) {
        REQUIRE(std::isnan(found.thresholds[2 * i + part]) == is_reset);
      }
    }
  }
  known_slots none;
  run(reset_slots<bfloat16>{none.memory, {}, 0});
  CHECK(none.counts == known_slots().counts);
}

TEST_CASE("a fork has the thresholds and the tail of its origin and retains nothing itself", "[host]") {
  known_slots found;
  known_slots const before;
  std::vector<std::int32_t> const from{0, 0};
  std::vector<std::int32_t> const to{3, 1};
  run(fork_slots<bfloat16>{found.memory, from, to});
  for (std::int64_t const slot : {1, 3}) {
    CHECK(found.has_tail_of(slot, before, 0));
    for (std::int64_t head = 0; head < heads; ++head) {
      auto const at = static_cast<std::size_t>(slot * heads + head);
      REQUIRE(found.counts[at] == 0);
      REQUIRE(found.refused[at] == 0);
      REQUIRE(found.thresholds[2 * at] == static_cast<float>(2 * head));
      REQUIRE(found.thresholds[2 * at + 1] == static_cast<float>(2 * head + 1));
    }
  }
  for (std::int64_t const slot : {0, 2}) {
    CHECK(found.has_tail_of(slot, before, slot));
    CHECK(found.counts[static_cast<std::size_t>(slot * heads + 7)] == 1000 + slot * heads + 7);
  }
  CHECK_FALSE(before.has_tail_of(1, before, 0));
}

TEST_CASE("pages that tokens complete count as sealed, no more than a call or a block table has", "[host]") {
  constexpr std::int64_t count = 34;
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> pages;
  std::vector<std::int32_t> expected;
  for (std::int32_t i = 0; i < count; ++i) {
    lengths.push_back(i * 29);
    pages.push_back(i % 5);
    std::int32_t const sealed = i * 29 > 64 ? (i * 29 - 64) / 64 : 0;
    std::int32_t const most = std::min(std::min(sealed, pages.back() + 3), 7);
    expected.push_back(std::max(pages.back(), most));
  }
  pages.push_back(-77);
  cache_sequences sequences;
  sequences.blocks = {nullptr, {count, 7}};
  sequences.lengths = {lengths.data(), count};
  sequences.count = count;
  run(advance_pages{sequences, 64, 3, {pages.data(), count}});
  CHECK(pages.back() == -77);
  pages.pop_back();
  CHECK(pages == expected);
}
