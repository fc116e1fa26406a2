// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/paged_cache/cache_append.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/program/paged_cache/page_reader.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/paged_cache/small_cache.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

/// The small cache, whose second layer is 1.25 times the first one but for some tokens, where it is the opposite.
struct appended_cache : tessera_test::sealing_cache {
  static constexpr std::uint64_t retained[2] = {std::uint64_t{1} << 7, std::uint64_t{1} << 0 | std::uint64_t{1} << 63};
  std::vector<std::uint32_t> row_counts = std::vector<std::uint32_t>(3 * heads, 0);
  std::vector<std::uint32_t> refused = std::vector<std::uint32_t>(3 * heads, 0);
  cache_append_regions regions{"test", 3, 128, heads};
  buffer<std::byte> bytes{regions.plan.bytes()};
  std::vector<bfloat16> originals;  ///< layer x {key, value} x head x token x channel of the last sequence

  appended_cache() {
    memory.row_counts = row_counts.data();
    memory.refused_rows = refused.data();
    std::fill(thresholds.begin(), thresholds.end(), std::numeric_limits<float>::quiet_NaN());
    std::fill(bytes.begin(), bytes.end(), std::byte{0xa5});
    for (int layer = 0; layer < 2; ++layer) {
      for (int which = 0; which < 2; ++which) {
        for (std::int64_t head = 0; head < heads; ++head) {
          for (std::int64_t of = 0; of < 203; ++of) {
            for (int channel = 0; channel < channels; ++channel) {
              bool const is_apart = of < 128 && (retained[of / 64] >> of % 64 & 1U) != 0;
              float const first = load(token(of, 0, which, head, channel));
              bfloat16& value = token(of, layer, which, head, channel);
              value = layer == 0 ? value : store<bfloat16>(is_apart ? -first : 1.25F * first);
              originals.push_back(value);
            }
          }
        }
      }
    }
  }
  [[nodiscard]] float original(int layer, int which, std::int64_t head, std::int64_t of, int channel) const {
    std::int64_t const list = (layer * 2 + which) * heads + head;
    return load(originals[static_cast<std::size_t>((list * 203 + of) * channels + channel)]);
  }
  template <class Executor>
  void append(Executor const& exec, cache_source<bfloat16> const& from) {
    workspace const space(regions.plan, bytes);
    cache_append_call<slerp_merger<float>, bfloat16> const call{
        {}, retain_most_different::angle(1.0F), false, from, regions.rows_in(space), regions.marks_in(space)};
    detail::append_portably(exec, call);
  }

  /// The relative error of what the pages of the last sequence hold, where they hold it.
  [[nodiscard]] double error() const {
    double lost = 0;
    double whole = 0;
    for (int layer = 0; layer < 2; ++layer) {
      for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t of = 0; of < 128; ++of) {
          std::int64_t const block = blocks[static_cast<std::size_t>(4 + of / 64)];
          page_reader const page{memory.format, memory.page(block, head), layer};
          auto const in_page = static_cast<int>(of % 64);
          for (int channel = 0; channel < channels && !page.is_retained(in_page); ++channel) {
            double const key = double{original(layer, key_part, head, of, channel)};
            double const value = double{original(layer, value_part, head, of, channel)};
            lost += std::pow(double{page.key(in_page, channel)} - key, 2);
            lost += std::pow(double{page.value(in_page, channel)} - value, 2);
            whole += key * key + value * value;
          }
        }
      }
    }
    return std::sqrt(lost / whole);
  }
  /// How many retained rows, and tokens of the tail behind the pages, are not as they came.
  [[nodiscard]] int wrong() {
    int count = 0;
    for (std::int64_t head = 0; head < heads; ++head) {
      for (int layer = 0; layer < 2; ++layer) {
        for (int which = 0; which < 2; ++which) {
          for (int channel = 0; channel < channels; ++channel) {
            std::int64_t row = 0;
            for (std::int64_t const of : {7, 64, 127}) {
              float const found = load(memory.retained_row(0, head, row++, layer, which)[channel]);
              count += found == original(layer, which, head, of, channel) ? 0 : 1;
            }
            for (std::int64_t of = 128; of < 203; ++of) {
              float const found = load(memory.tail_row(0, layer, which, head, of)[channel]);
              count += found == original(layer, which, head, of, channel) ? 0 : 1;
            }
          }
        }
      }
    }
    return count;
  }
};

template <class Executor>
void check_append(Executor const& exec) {
  appended_cache cache;
  cache.append(exec, cache.source());
  CHECK(cache.error() < 0.1);  // codes have 4 bits
  CHECK(cache.wrong() == 0);
  for (std::int64_t head = 0; head < 2; ++head) {
    CHECK(cache.header(4, head).retained == cache.retained[0]);
    CHECK(cache.header(2, head).retained == cache.retained[1]);
    CHECK(cache.header(2, head).first_row == 1);
  }
  CHECK(cache.row_counts == std::vector<std::uint32_t>{3, 3, 0, 0, 0, 0});  // the last sequence is in slot 0
  CHECK(cache.refused == std::vector<std::uint32_t>(6, 0));
  CHECK(cache.thresholds[0] == 1.0F);
  CHECK(std::isnan(cache.thresholds[4]));  // no other sequence has pages
}

}  // namespace

TEST_CASE("an append has room for a row of each key and value and for a mark of each page", "[host]") {
  cache_append_regions const regions("somewhere", 3, 129, 2);
  CHECK(regions.pages == 3);  // the last one is not full
  CHECK(regions.plan.bytes() >= 3 * 3 * 2 * (128 * std::int64_t{sizeof(merged_row)} + std::int64_t{sizeof(page_mark)}));
  buffer<std::byte> memory(regions.plan.bytes());
  workspace const space(regions.plan, memory);
  auto const rows = regions.rows_in(space);
  auto const marks = regions.marks_in(space);
  CHECK((rows.extent(0) == 3 && rows.extent(1) == 3 && rows.extent(2) == 2 && rows.extent(3) == 2));
  CHECK(rows.extent(4) == 64);
  CHECK((marks.extent(0) == 3 && marks.extent(1) == 3 && marks.extent(2) == 2));
  CHECK(cache_append_regions("somewhere", 3, 0, 2).plan.bytes() == 0);
  CHECK_THROWS_AS(cache_append_regions("somewhere", std::int64_t{1} << 40, std::int64_t{1} << 40, 2), shape_error);
}

TEST_CASE("an append measures, fits, marks and writes the pages that it seals, and keeps the rest in the tail",
          "[host][threads]") {
  check_append(cpu{.threads = 2});
}

TEST_CASE("appending by portable programs keeps the rules for programs", "[host]") {
  check_append(testing::adversary{.seed = 91});
}

TEST_CASE("an append that seals no page keeps its tokens in the tail alone", "[host]") {
  appended_cache cache;
  auto const pages = cache.pages;
  cache.regions = {"test", 3, 0, 2};
  cache.lengths[2] = 150;  // of which 47 are new
  cache.new_tokens[2] = 47;
  auto from = cache.source();
  from.most_pages = 0;
  cache.append(cpu{.threads = 1}, from);
  int wrong = 0;
  for (std::int64_t of = 0; of < 150; ++of) {
    float const found = load(cache.memory.tail_row(0, 1, value_part, 1, of)[31]);
    wrong += found == cache.original(1, value_part, 1, of, 31) ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(cache.pages == pages);
  CHECK(cache.row_counts == std::vector<std::uint32_t>(6, 0));
}

TEST_CASE("a fault of an append is reported to its executor, unless it has a status of its own", "[host]") {
  cpu const exec{.threads = 1};
  appended_cache cache;
  cache.blocks[5] = 6;
  cache.append(exec, cache.source());
  CHECK_THROWS_AS(exec.wait(), value_error);
  cpu const other{.threads = 1};
  auto from = cache.source();
  from.status = other.status();
  cache.append(exec, from);
  CHECK_NOTHROW(exec.wait());
  CHECK_THROWS_AS(other.wait(), value_error);
}
