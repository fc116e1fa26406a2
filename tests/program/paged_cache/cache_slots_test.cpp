// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/paged_cache/cache_slots.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::contains;
using tessera_test::message_of;

namespace {

constexpr std::int64_t slots = 4;
constexpr std::int64_t heads = 35;  // more than the lanes of a group

/// Slots in which every element is known and different.
struct known_slots {
  cache_memory<bfloat16> memory{{32, 4, 4, 1, 1}, heads, 0, 5, slots, 1000, 0, {}, {}, {}, {}, {}, {}};
  std::vector<bfloat16> tail;
  std::vector<bfloat16> rows;
  std::vector<std::uint32_t> counts;
  std::vector<std::uint32_t> refused;
  std::vector<float> thresholds;

  known_slots()
      : tail(static_cast<std::size_t>(memory.tail_values(slots))),
        rows(static_cast<std::size_t>(memory.row_values(slots))) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = bfloat16{static_cast<std::uint16_t>(i * 6007 / 16)};
    }
    for (std::size_t i = 0; i < tail.size(); ++i) {
      tail[i] = bfloat16{static_cast<std::uint16_t>(i * 7919 / 16)};
    }
    for (std::uint32_t i = 0; i < slots * heads; ++i) {
      counts.push_back(i % 6);  // there is room for five
      refused.push_back(2000 + i);
      thresholds.push_back(static_cast<float>(2 * i));
      thresholds.push_back(static_cast<float>(2 * i + 1));
    }
    memory.tail = tail.data();
    memory.rows = rows.data();
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
                              has_names ? array_view<std::int32_t const>(named) : array_view<std::int32_t const>(), 2,
                              nullptr});
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
  run(reset_slots<bfloat16>{none.memory, {}, 0, nullptr});
  CHECK(none.counts == known_slots().counts);
}

TEST_CASE("a fork has all that its origin has, in memory of its own", "[host]") {
  known_slots found;
  known_slots const before;
  std::vector<std::int32_t> const from{0, 0};
  std::vector<std::int32_t> const to{3, 1};
  run(fork_slots<bfloat16>{found.memory, from, to, nullptr});
  std::int64_t const row_values = found.memory.row_values(1) / heads / 5;
  for (std::int64_t const slot : {1, 3}) {
    CHECK(found.has_tail_of(slot, before, 0));
    for (std::int64_t head = 0; head < heads; ++head) {
      auto const at = static_cast<std::size_t>(slot * heads + head);
      std::uint32_t const taken = before.counts[static_cast<std::size_t>(head)];
      REQUIRE(taken == static_cast<std::uint32_t>(head % 6));
      REQUIRE(found.counts[at] == taken);
      REQUIRE(found.refused[at] == 2000 + static_cast<std::uint32_t>(head));
      REQUIRE(found.thresholds[2 * at] == static_cast<float>(2 * head));
      REQUIRE(found.thresholds[2 * at + 1] == static_cast<float>(2 * head + 1));
      for (std::int64_t i = 0; i < 5 * row_values; ++i) {
        std::int64_t const origin = i < taken * row_values ? 0 : slot;  // rows that are not in use stay
        REQUIRE(found.memory.retained_row(slot, head, 0, 0, 0)[i] ==
                before.memory.retained_row(origin, head, 0, 0, 0)[i]);
      }
    }
  }
  for (std::int64_t const slot : {0, 2}) {
    CHECK(found.has_tail_of(slot, before, slot));
    CHECK(found.counts[static_cast<std::size_t>(slot * heads + 7)] == (slot * heads + 7) % 6);
  }
  CHECK_FALSE(before.has_tail_of(1, before, 0));
}

TEST_CASE("slots that are none are reported and left out, and pairs that write to each other's slots", "[host]") {
  cpu const exec{.threads = 1};
  auto const complaint = [&] { return message_of([&] { exec.wait(); }); };
  for (std::int32_t const bad : {-1, 4, INT32_MIN, INT32_MAX}) {
    CAPTURE(bad);
    known_slots found;
    std::vector<std::int32_t> const named{1, bad};
    run(reset_slots<bfloat16>{found.memory, named, 2, exec.status()});
    CHECK_THAT(complaint(), contains("slot " + std::to_string(bad) + " of sequence 1 is none of 4"));
    CHECK(found.counts[heads + 1] == 0);
    CHECK(found.counts[1] == 1);
    for (bool const is_source : {true, false}) {
      known_slots copied;
      std::vector<std::int32_t> const from{0, is_source ? bad : 0};
      std::vector<std::int32_t> const to{1, is_source ? 2 : bad};
      run(fork_slots<bfloat16>{copied.memory, from, to, exec.status()});
      CHECK_THAT(complaint(), contains("slot " + std::to_string(bad) + " of sequence 1 is none of 4"));
      CHECK(copied.has_tail_of(1, known_slots(), 0));
      CHECK(copied.has_tail_of(2, known_slots(), 2));
    }
  }
  struct one_fork {
    std::vector<std::int32_t> pairs;  // from, from, to, to
    std::string complaint;
  };
  for (auto const& [pairs, said] : {one_fork{{0, 2, 1, 1}, "pair 0 has slot 1, which pair 1 writes to"},
                                    one_fork{{0, 1, 1, 3}, "pair 1 has slot 1, which pair 0 writes to"},
                                    one_fork{{3, 0, 1, 3}, "pair 0 has slot 3, which pair 1 writes to"}}) {
    known_slots found;
    run(fork_slots<bfloat16>{found.memory, {pairs.data(), 2}, {pairs.data() + 2, 2}, exec.status()});
    CHECK_THAT(complaint(), contains(said));
  }
  std::vector<std::int32_t> from(300, 0);
  std::vector<std::int32_t> to(300, 1);  // more pairs than lanes: the first other one is named
  known_slots many;
  run(fork_slots<bfloat16>{many.memory, from, to, exec.status()});
  CHECK_THAT(complaint(), contains("pair 0 has slot 1, which pair 1 writes to"));
  known_slots same;
  std::vector<std::int32_t> const itself{2};
  run(fork_slots<bfloat16>{same.memory, itself, itself, exec.status()});
  CHECK(complaint() == "");
  CHECK(same.has_tail_of(2, known_slots(), 2));
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
  run(advance_pages{sequences, 64, 3, {pages.data(), count}, nullptr});
  CHECK(pages.back() == -77);
  pages.pop_back();
  CHECK(pages == expected);
}

TEST_CASE("counts of pages that a block table does not have are reported and stay", "[host]") {
  cpu const exec{.threads = 1};
  std::vector<std::int32_t> const lengths{400, 400, 400};
  std::vector<std::int32_t> pages{2, -1, 8};
  cache_sequences sequences;
  sequences.blocks = {nullptr, {3, 7}};
  sequences.lengths = lengths;
  REQUIRE(sequences.size() == 3);  // as many as there are block tables
  exec.run(advance_pages{sequences, 64, 3, pages, exec.status()}, 1);
  CHECK_THROWS_WITH(exec.wait(), contains("sequence 1 has -1 sealed pages but may have from 0 to 7"));
  CHECK(pages == std::vector<std::int32_t>{5, -1, 8});
}
