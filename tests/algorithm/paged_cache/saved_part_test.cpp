// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/algorithm/paged_cache/saved_part.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera_test::contains;

namespace {

using part_type = detail::saved_part<bfloat16>;
using detail::section_reader;
using detail::section_writer;

std::vector<std::byte> section_of(std::size_t size) {
  std::vector<std::byte> section;
  for (std::size_t i = 0; i < size; ++i) {
    section.push_back(static_cast<std::byte>(i % 7 * (i % 3)));
  }
  return section;
}

cache_memory<bfloat16> memory_of(std::int64_t capacity) {
  return {{32, 4, 4, 1, 1}, 2, 64, capacity, 4, 1000, 3, {}, {}, {}, {}, {}, {}};
}

/// Three pages of two heads; page p of head h retains tokens of its own.
struct marked_part {
  cache_memory<bfloat16> memory = memory_of(100);
  part_type part;

  marked_part() {
    part.pages.resize(static_cast<std::size_t>(memory.page_bytes(3)));
    part.counts = {0, 0};
    for (int page = 0; page < 3; ++page) {
      for (std::uint32_t head = 0; head < 2; ++head) {
        std::uint64_t const retained = page == 1 ? 0 : page == 2 ? ~std::uint64_t{0} : std::uint64_t{5} << 40 << head;
        auto const rows = static_cast<std::uint32_t>(popcount(retained));
        put(page, head, {retained, rows > 0 ? part.counts[head] : 0, rows, 0.5F, 0.25F, {0, 0}});
        part.counts[head] += rows;
      }
    }
  }
  std::byte* page(int number, std::uint32_t head) {
    return part.pages.data() + (number * 2 + static_cast<int>(head)) * memory.format.bytes();
  }
  void put(int number, std::uint32_t head, cache_page_header const& header) {
    std::memcpy(page(number, head) + memory.format.header(), &header, sizeof(header));
  }
  cache_page_header get(int number, std::uint32_t head) {
    return part_type::header_of(page(number, head), memory.format);
  }
  std::string complaint() {
    try {
      detail::check_rows(part, memory);
    } catch (corrupt_data const& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
};

/// The bytes of a saved part: thresholds, counts, codes, the rest of the pages, uncompressed tokens.
std::vector<std::byte> saved(std::uint32_t first_count, std::uint32_t second_count) {
  std::vector<std::byte> bytes;
  section_writer out(saved_cache_coder::stored, bytes);
  float const thresholds[] = {0.1F, 0.2F, 0.3F, 0.4F};
  std::uint32_t const counts[] = {first_count, second_count};
  out.write(thresholds, sizeof(thresholds));
  out.write(counts, sizeof(counts));
  out.write(section_of(static_cast<std::size_t>(memory_of(0).page_bytes(1))));
  // Vectors of retained tokens, and of seven tokens of the tail.
  std::size_t const vectors = first_count + second_count + 7 * 2;
  out.write(section_of(vectors * 2 * 32 * sizeof(bfloat16)));
  return bytes;
}

part_type read(std::vector<std::byte> const& bytes, std::int64_t capacity) {
  section_reader in(saved_cache_coder::stored, bytes.data(), bytes.size());
  part_type const found = detail::read_part(in, memory_of(capacity), 1, 64 + 7);
  CHECK(in.left() == 0);
  return found;
}

}  // namespace

TEST_CASE("sections come back one after the other, with the same checksum", "[host]") {
  for (auto coder : {saved_cache_coder::stored, saved_cache_coder::rans}) {
    std::vector<std::byte> bytes;
    section_writer out(coder, bytes);
    std::vector<std::size_t> const sizes{5, 0, 1, 70000};
    for (std::size_t const size : sizes) {
      out.write(section_of(size));
    }
    section_reader in(coder, bytes.data(), bytes.size());
    for (std::size_t const size : sizes) {
      CHECK(in.read(size) == section_of(size));
    }
    CHECK(in.left() == 0);
    CHECK(in.checksum() == out.checksum());
    CHECK(in.checksum() != section_writer(coder, bytes).checksum());
  }
}

TEST_CASE("a section that is longer than what there is costs no memory and is named", "[host]") {
  std::vector<std::byte> const bytes = section_of(100);
  section_reader in(saved_cache_coder::stored, bytes.data(), bytes.size());
  CHECK(in.read(40).size() == 40);
  CHECK_THROWS_WITH(in.read(61), "load_cache: a section has 61 bytes but there are 60");
  CHECK(in.left() == 60);
  CHECK_THROWS_WITH(in.read(std::size_t{1} << 62), contains("4611686018427387904 bytes") && contains(": 60"));
  CHECK_THROWS_AS(in.read(61 * 128), corrupt_data);
  CHECK(in.read(60).size() == 60);
  CHECK(in.read(0).empty());
}

TEST_CASE("pages are restored as they were saved, whatever the slot", "[host]") {
  marked_part marked;
  REQUIRE(marked.complaint() == "nothing was thrown");
  std::vector<std::byte> pages(marked.part.pages.size());
  std::vector<bfloat16> tail(static_cast<std::size_t>(marked.memory.tail_values(4)));
  std::vector<bfloat16> rows(static_cast<std::size_t>(marked.memory.row_values(4)));
  std::vector<std::uint32_t> counts(8);
  std::vector<std::uint32_t> refused(8, 7);
  std::vector<float> thresholds(16);
  marked.memory.pages = pages.data();
  marked.memory.tail = tail.data();
  marked.memory.rows = rows.data();
  marked.memory.row_counts = counts.data();
  marked.memory.refused_rows = refused.data();
  marked.memory.thresholds = thresholds.data();
  std::int64_t const row = part_type::row_values(marked.memory.format);
  for (std::int64_t i = 0; i < 2 * 66 * row; ++i) {
    marked.part.rows.push_back(bfloat16{static_cast<std::uint16_t>(i)});
  }
  marked.part.thresholds = {0.1F, 0.2F, 0.3F, 0.4F};
  detail::restore_part(cpu{.threads = 1}, marked.memory, marked.part, {0, 1, 2}, 3, 3 * 64);
  CHECK(pages == marked.part.pages);
  for (std::int64_t head = 0; head < 2; ++head) {
    CHECK(counts[static_cast<std::size_t>(6 + head)] == 66);
    CHECK(refused[static_cast<std::size_t>(6 + head)] == 0);
    for (std::int64_t i : {std::int64_t{0}, 65 * row}) {
      CHECK(marked.memory.retained_row(3, head, i / row, 0, 0)->bits ==
            static_cast<std::uint16_t>(head * 66 * row + i));
    }
  }
  CHECK(counts[5] == 0);
}

TEST_CASE("pages and counts that say different things are named", "[host]") {
  marked_part more;
  more.put(0, 1, {1, 0, 2, 0.0F, 0.0F, {0, 0}});
  CHECK(more.complaint() == "load_cache: page 0 has retained 1 tokens but says 2");
  marked_part apart;
  apart.put(2, 0, {1, 3, 1, 0.0F, 0.0F, {0, 0}});
  CHECK(apart.complaint() == "load_cache: page 2 has retained tokens from number 3 on but must have them from 2");
  marked_part none;
  none.put(1, 0, {0, 2, 0, 0.0F, 0.0F, {0, 0}});  // save_cache() could not write such a page
  CHECK(none.complaint() == "load_cache: page 1 has retained tokens from number 2 on but must have them from 0");
  marked_part fewer;
  fewer.part.counts[1] = 65;
  CHECK(fewer.complaint() == "load_cache: pages have retained 66 tokens of a head but its count is 65");
  CHECK(marked_part().complaint() == "nothing was thrown");
}

TEST_CASE("a part is read as it was saved, if its counts can be", "[host]") {
  part_type const found = read(saved(3, 64), 64);
  CHECK(found.thresholds == std::vector<float>{0.1F, 0.2F, 0.3F, 0.4F});
  CHECK(found.counts == std::vector<std::uint32_t>{3, 64});
  CHECK(found.pages.size() == static_cast<std::size_t>(memory_of(0).page_bytes(1)));
  CHECK(found.rows.size() == 67 * 64);
  CHECK(found.open.size() == 7 * 2 * 64);
  auto const open = section_of((67 + 14) * 128);
  CHECK(std::memcmp(found.open.data(), open.data() + 67 * 128, 14 * 128) == 0);
  CHECK(read(saved(0, 0), 0).rows.empty());
  CHECK_THROWS_WITH(read(saved(65, 0), 100), "load_cache: a head has retained 65 tokens of 64");
  CHECK_THROWS_AS(read(saved(65, 0), 100), corrupt_data);
  CHECK_THROWS_WITH(read(saved(0, 11), 10), "load_cache: a head has retained 11 tokens but there is room for 10");
  CHECK_THROWS_AS(read(saved(0, 11), 10), shape_error);
}
