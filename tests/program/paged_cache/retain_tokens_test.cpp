// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/paged_cache/retain_tokens.hpp>
#include <tessera/testing/generators.hpp>

#include "support/cache_problem.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Angles, of which one in `rare` is beyond its threshold, and some are NaN.
std::vector<float> make_angles(std::int64_t count, std::uint64_t rare) {
  std::vector<float> angles;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t const random = testing::hash(11, static_cast<std::uint64_t>(i));
    bool const is_nan = random % 997 == 0;
    angles.push_back(is_nan ? std::numeric_limits<float>::quiet_NaN() : random % rare == 0 ? 1.25F : 0.5F);
  }
  return angles;
}

void check_marks(std::int64_t pages, std::int64_t capacity, std::uint64_t rare) {
  constexpr std::int64_t heads = 2;
  constexpr std::int64_t slots = 2;
  std::int64_t const tokens = 64 * (pages + 1);
  cache_problem<bfloat16> cache({64, 4, 4, 1, 2}, heads, slots, tokens, 64, capacity);
  // The second sequence has fewer pages.
  cache.lengths = {static_cast<std::int32_t>(tokens), static_cast<std::int32_t>(tokens - 130)};
  cache.thresholds.assign(cache.thresholds.size(), 1.0F);
  cache.row_counts = {0, 2, 1, 0};
  cache_source<bfloat16> const source{cache.memory, {}, cache.sequences(), tokens, pages};
  std::vector<float> const angles = make_angles(slots * pages * heads * 128, rare);
  std::vector<page_mark> marks(as_size(slots * pages * heads), page_mark{~0ULL, 77, 77});
  view<float const, 5> const rows(angles.data(), {slots, pages, heads, 2, 64});
  view<page_mark, 3> const all_marks(marks.data(), {slots, pages, heads});
  find_apart<bfloat16, float> const find{source, rows, all_marks};
  mark_rows<bfloat16> const mark{source, all_marks};
  std::vector<std::uint32_t> taken = cache.row_counts;
  std::vector<std::uint32_t> refused(taken.size());
  cpu{.threads = 1}.run(find, find.groups());
  cpu{.threads = 1}.run(mark, mark.groups());
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    for (std::int64_t head = 0; head < heads; ++head) {
      std::size_t const at = as_size(slot * heads + head);
      for (std::int64_t page = 0; page < source.end_page(slot); ++page) {
        std::uint64_t retained = 0;
        std::uint32_t const first = taken[at];
        std::uint32_t count = 0;
        for (int token = 0; token < 64; ++token) {
          if (rows(slot, page, head, 0, token) < 1.0F && rows(slot, page, head, 1, token) < 1.0F) {
            continue;
          }
          if (capacity > 0 && taken[at] < static_cast<std::uint32_t>(capacity)) {
            retained |= std::uint64_t{1} << token;
            ++taken[at];
            ++count;
          } else if (capacity > 0) {
            ++refused[at];
          }
        }
        page_mark const& found = all_marks(slot, page, head);
        CHECK((found.retained == retained && found.rows == count && found.first_row == (count > 0 ? first : 0)));
      }
    }
  }
  CHECK(cache.row_counts == taken);
  CHECK(cache.refused == refused);
  page_mark const& beyond = all_marks(1, pages - 1, 0);
  CHECK(beyond.first_row == 77);  // there is no such page in the shorter sequence
}

}  // namespace

TEST_CASE("rows are given in order until there is none left", "[host][slow]") {
  for (std::int64_t const pages : {3, 63, 64, 65, 200}) {
    for (std::int64_t const capacity : {0, 2, 37, 100000}) {
      check_marks(pages, capacity, 20);
      check_marks(pages, capacity, 3);
    }
  }
}

TEST_CASE("the lowest bits are kept", "[host]") {
  CHECK(lowest_bits(0, 5) == 0);
  CHECK(lowest_bits(0xf0, 2) == 0x30);
  CHECK(lowest_bits(~0ULL, 64) == ~0ULL);
  CHECK(lowest_bits(0x8000000000000001ULL, 2) == 0x8000000000000001ULL);
  CHECK(lowest_bits(~0ULL, 0) == 0);
}
