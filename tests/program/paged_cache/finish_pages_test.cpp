// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/paged_cache/finish_pages.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/paged_cache/small_cache.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

/// A cache whose last sequence retains three tokens of its pages.
struct finished_cache : tessera_test::sealing_cache {
  std::vector<page_mark> marks = std::vector<page_mark>(3 * 2 * heads);

  finished_cache() {
    for (std::int64_t head = 0; head < heads; ++head) {
      mark(0, head) = {std::uint64_t{1} << 3 | std::uint64_t{1} << 63, static_cast<std::uint32_t>(head), 2};
      mark(1, head) = {std::uint64_t{1} << 50, static_cast<std::uint32_t>(head + 2), 1};
    }
  }
  page_mark& mark(std::int64_t page, std::int64_t head) {
    return marks[static_cast<std::size_t>((2 * 2 + page) * heads + head)];
  }
  template <class Executor>
  void finish(Executor const& exec) {
    finish_pages<bfloat16> const program{source(), {marks.data(), {3, 2, heads}}};
    exec.run(program, program.groups());
  }
  /// How many retained elements are not those of their tokens.
  [[nodiscard]] int wrong_rows(std::int64_t head, std::int64_t row, std::int64_t of) {
    int wrong = 0;
    for (int layer = 0; layer < 2; ++layer) {
      for (int const which : {key_part, value_part}) {
        for (int channel = 0; channel < channels; ++channel) {
          wrong += memory.retained_row(0, head, row, layer, which)[channel] == token(of, layer, which, head, channel)
                       ? 0
                       : 1;
        }
      }
    }
    return wrong;
  }
  /// How many headers and retained rows are wrong.
  int wrong() {
    int count = 0;
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t page = 0; page < 2; ++page) {
        cache_page_header const& found = header(blocks[static_cast<std::size_t>(4 + page)], head);
        page_mark const& own = mark(page, head);
        bool const is_right = found.retained == own.retained && found.first_row == own.first_row &&
                              found.rows == own.rows && found.zero[0] == 0 && found.zero[1] == 0 &&
                              found.key_threshold == memory.threshold(0, head, key_part) &&
                              found.value_threshold == memory.threshold(0, head, value_part);
        count += is_right ? 0 : 1;
      }
      count += wrong_rows(head, head, 3) + wrong_rows(head, head + 1, 63) + wrong_rows(head, head + 2, 64 + 50);
    }
    return count;
  }
};

}  // namespace

TEST_CASE("pages get their headers, and retained tokens their rows, from the tail and from the inputs",
          "[host][threads]") {
  finished_cache cache;
  auto const pages = cache.pages;
  auto const rows = cache.rows;
  cache.finish(cpu{.threads = 2});
  CHECK(cache.wrong() == 0);
  std::size_t written = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    written += cache.pages[i] == pages[i] ? 0 : 1;
  }
  CHECK(written <= 4 * sizeof(cache_page_header) / 4);  // of two pages of two heads, and nothing else
  std::size_t rows_written = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows_written += cache.rows[i] == rows[i] ? 0 : 1;
  }
  CHECK(rows_written <= 2 * 3 * 4 * 32);
}

TEST_CASE("a page whose block does not exist is left out", "[host]") {
  finished_cache cache;
  cache.blocks[5] = 6;
  auto const rows = cache.rows;
  cache.finish(cpu{.threads = 1});
  CHECK(cache.wrong_rows(0, 0, 3) == 0);
  auto const untouched = static_cast<std::size_t>(cache.memory.retained_row(0, 0, 2, 0, 0) - cache.rows.data());
  CHECK(cache.rows[untouched] == rows[untouched]);
}

TEST_CASE("finishing pages keeps the rules for programs", "[host]") {
  finished_cache cache;
  cache.finish(testing::adversary{.seed = 20});
  CHECK(cache.wrong() == 0);
}
