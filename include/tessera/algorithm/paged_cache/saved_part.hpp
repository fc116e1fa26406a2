// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The sections of a saved cache (algorithm/paged_cache/saved_cache.hpp): `saved_part` holds what a sequence has in one
/// part of the layers, and moves it from a cache to bytes and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/paged_cache/cache_bytes.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/crc32c_host.hpp>
#include <tessera/entropy/byte_blocks.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// How sections are coded; the numbers are part of the format.
enum class saved_cache_coder : std::uint8_t { stored = 0, rans = 1 };

namespace detail {

/// Writes sections to bytes. section_reader reads them again.
class section_writer {
 public:
  section_writer(saved_cache_coder coder, std::vector<std::byte>& out) : coder_(coder), out_(out) {}
  void write(void const* data, std::size_t size) {
    auto const* const bytes = static_cast<std::byte const*>(data);
    checksum_ = crc32c_host(bytes, size, checksum_);
    if (coder_ == saved_cache_coder::rans) {
      append_coded_bytes(bytes, size, out_);
    } else {
      out_.insert(out_.end(), bytes, bytes + size);
    }
  }
  void write(std::vector<std::byte> const& section) { write(section.data(), section.size()); }
  [[nodiscard]] std::uint32_t checksum() const { return checksum_; }

 private:
  saved_cache_coder coder_;
  std::vector<std::byte>& out_;
  std::uint32_t checksum_ = 0;
};

class section_reader {
 public:
  section_reader(saved_cache_coder coder, std::byte const* bytes, std::size_t size)
      : coder_(coder), bytes_(bytes), left_(size) {}
  void read(void* data, std::size_t size) {
    auto* const bytes = static_cast<std::byte*>(data);
    std::size_t taken = size;
    if (coder_ == saved_cache_coder::rans) {
      taken = read_coded_bytes(bytes_, left_, bytes, size);
    } else {
      check<corrupt_data>(size <= left_, "load_cache: a section has ", size, " bytes but there are ", left_);
      if (size > 0) {
        std::memcpy(bytes, bytes_, size);
      }
    }
    bytes_ += taken;
    left_ -= taken;
    checksum_ = crc32c_host(bytes, size, checksum_);
  }
  [[nodiscard]] std::vector<std::byte> read(std::size_t size) {
    // There are at least 520 coded bytes for every 65536, so that a header claims no more memory than its bytes
    // account for.
    check<corrupt_data>(size / 128 <= left_, "load_cache: a section has ", size,
                        " bytes but there are coded ones: ", left_);
    std::vector<std::byte> section(size);
    read(section.data(), size);
    return section;
  }
  [[nodiscard]] std::size_t left() const { return left_; }
  [[nodiscard]] std::uint32_t checksum() const { return checksum_; }

 private:
  saved_cache_coder coder_;
  std::byte const* bytes_;
  std::size_t left_;
  std::uint32_t checksum_ = 0;
};

/// The sections of a part, on the host.
template <class T>
struct saved_part {
  std::vector<float> thresholds;
  std::vector<std::uint32_t> counts;
  std::vector<std::byte> pages;  ///< sealed pages, page x head
  std::vector<T> rows;           ///< retained tokens, head x token x layer x {key, value} x channel
  std::vector<T> open;           ///< tokens of the tail, token x layer x head x {key, value} x channel

  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }
  static std::int64_t row_values(cache_page_format const& f) { return std::int64_t{2} * f.layers * f.channels; }
  static cache_page_header header_of(std::byte const* page, cache_page_format const& f) {
    cache_page_header header;
    std::memcpy(&header, page + f.header(), sizeof(header));
    return header;
  }
  static void set_first_row(std::byte* page, cache_page_format const& f, std::uint32_t first) {
    cache_page_header header = header_of(page, f);
    header.first_row = header.rows > 0 ? first : 0;
    std::memcpy(page + f.header(), &header, sizeof(header));
  }
};

/// Copies pages, retained rows and counts from a cache, with rows numbered from the first of each head. Waits.
template <class T, Executor Exec>
saved_part<T> fetch_part(Exec const& exec, cache_memory<T> const& memory, std::vector<std::int32_t> const& table,
                         std::int64_t slot, std::int64_t tokens) {
  using part_type = saved_part<T>;
  cache_page_format const& f = memory.format;
  part_type part;
  std::int64_t const block_bytes = memory.page_bytes(1);
  part.pages.resize(part_type::size(block_bytes) * table.size());
  for (std::size_t page = 0; page < table.size(); ++page) {
    exec.copy(array_view<std::byte const>(memory.page(table[page], 0), block_bytes),
              array_view<std::byte>(part.pages.data() + page * part_type::size(block_bytes), block_bytes));
  }
  exec.wait();
  part.thresholds =
      fetched(exec, static_cast<float const*>(memory.thresholds) + 2 * memory.head_of(slot, 0), 2 * memory.heads);
  std::int64_t const row = part_type::row_values(f);
  for (std::int64_t head = 0; head < memory.heads; ++head) {
    std::uint32_t count = 0;
    for (std::size_t page = 0; page < table.size(); ++page) {
      std::byte* const at =
          part.pages.data() + (static_cast<std::int64_t>(page) * memory.heads + head) * std::int64_t{f.bytes()};
      cache_page_header const header = part_type::header_of(at, f);
      check<corrupt_data>(std::int64_t{header.first_row} + header.rows <= memory.row_capacity, "save_cache: page ",
                          page, " has retained tokens up to number ", std::int64_t{header.first_row} + header.rows,
                          " but there is room for ", memory.row_capacity);
      auto const rows = fetched(exec, static_cast<T const*>(memory.retained_row(slot, head, header.first_row, 0, 0)),
                                std::int64_t{header.rows} * row);
      part.rows.insert(part.rows.end(), rows.begin(), rows.end());
      part_type::set_first_row(at, f, count);
      count += header.rows;
    }
    part.counts.push_back(count);
  }
  auto const tail =
      fetched(exec, static_cast<T const*>(memory.tail) + slot * memory.tail_values(1), memory.tail_values(1));
  cache_memory<T> host = memory;
  host.tail = const_cast<T*>(tail.data());
  auto const first = static_cast<std::int64_t>(table.size()) * cache_page_format::tokens;
  for (std::int64_t token = first; token < tokens; ++token) {
    for (int layer = 0; layer < f.layers; ++layer) {
      for (std::int64_t i = 0; i < 2 * memory.heads; ++i) {
        T const* const from = host.tail_row(0, layer, static_cast<int>(i % 2), i / 2, token);
        part.open.insert(part.open.end(), from, from + f.channels);
      }
    }
  }
  return part;
}

/// Calls `move` with the bytes of codes of all pages, or with all other bytes of them.
template <class T, class Move>
void each_piece(cache_page_format const& f, std::vector<std::byte>& pages, bool codes, Move const& move) {
  auto const bytes = static_cast<std::size_t>(f.bytes());
  auto const first = static_cast<std::size_t>(f.key_codes());
  auto const end = static_cast<std::size_t>(f.value_ratios());
  for (std::size_t at = 0; at < pages.size(); at += bytes) {
    if (codes) {
      move(pages.data() + at + first, end - first);
    } else {
      move(pages.data() + at, first);
      move(pages.data() + at + end, bytes - end);
    }
  }
}

template <class T>
void write_part(section_writer& out, cache_page_format const& f, saved_part<T>& part) {
  std::vector<std::byte> section(4 * (part.thresholds.size() + part.counts.size()));
  std::memcpy(section.data(), part.thresholds.data(), 4 * part.thresholds.size());
  std::memcpy(section.data() + 4 * part.thresholds.size(), part.counts.data(), 4 * part.counts.size());
  out.write(section);
  for (bool codes : {true, false}) {
    section.clear();
    each_piece<T>(f, part.pages, codes, [&](std::byte const* piece, std::size_t size) {
      section.insert(section.end(), piece, piece + size);
    });
    out.write(section);
  }
  section.resize(sizeof(T) * (part.rows.size() + part.open.size()));
  if (!part.rows.empty()) {
    std::memcpy(section.data(), part.rows.data(), sizeof(T) * part.rows.size());
  }
  if (!part.open.empty()) {
    std::memcpy(section.data() + sizeof(T) * part.rows.size(), part.open.data(), sizeof(T) * part.open.size());
  }
  out.write(section);
}

/// Reads a part of a cache with room for `capacity` retained tokens of a head.
template <class T>
saved_part<T> read_part(section_reader& in, cache_memory<T> const& memory, std::int64_t pages, std::int64_t tokens) {
  using part_type = saved_part<T>;
  cache_page_format const& f = memory.format;
  part_type part;
  part.thresholds.resize(part_type::size(2 * memory.heads));
  part.counts.resize(part_type::size(memory.heads));
  auto const numbers = in.read(4 * (part.thresholds.size() + part.counts.size()));
  std::memcpy(part.thresholds.data(), numbers.data(), 4 * part.thresholds.size());
  std::memcpy(part.counts.data(), numbers.data() + 4 * part.thresholds.size(), 4 * part.counts.size());
  std::int64_t rows = 0;
  for (std::uint32_t count : part.counts) {
    check<corrupt_data>(count <= pages * cache_page_format::tokens, "load_cache: a head has retained ", count,
                        " tokens of ", pages * cache_page_format::tokens);
    check<shape_error>(count <= memory.row_capacity, "load_cache: a head has retained ", count,
                       " tokens but there is room for ", memory.row_capacity);
    rows += count;
  }
  std::size_t const page_heads = part_type::size(pages * memory.heads);
  part.pages.resize(page_heads * part_type::size(f.bytes()));
  auto const code_bytes = static_cast<std::size_t>(f.key_code_bytes() + f.value_code_bytes());
  for (bool codes : {true, false}) {
    auto const section = in.read(page_heads * (codes ? code_bytes : static_cast<std::size_t>(f.bytes()) - code_bytes));
    std::size_t at = 0;
    each_piece<T>(f, part.pages, codes, [&](std::byte* piece, std::size_t size) {
      std::memcpy(piece, section.data() + at, size);
      at += size;
    });
  }
  std::int64_t const open = tokens - pages * cache_page_format::tokens;
  std::int64_t const row = part_type::row_values(f);
  auto const section = in.read(sizeof(T) * part_type::size((rows + open * memory.heads) * row));
  part.rows.resize(part_type::size(rows * row));
  part.open.resize(part_type::size(open * memory.heads * row));
  if (!part.rows.empty()) {
    std::memcpy(static_cast<void*>(part.rows.data()), section.data(), sizeof(T) * part.rows.size());
  }
  if (!part.open.empty()) {
    std::memcpy(static_cast<void*>(part.open.data()), section.data() + sizeof(T) * part.rows.size(),
                sizeof(T) * part.open.size());
  }
  return part;
}

/// Checks that pages and counts agree. A page that retains nothing has 0 as its first row.
template <class T>
void check_rows(saved_part<T> const& part, cache_memory<T> const& memory) {
  cache_page_format const& f = memory.format;
  auto const pages = static_cast<std::int64_t>(part.pages.size()) / memory.page_bytes(1);
  for (std::int64_t head = 0; head < memory.heads; ++head) {
    std::uint32_t count = 0;
    for (std::int64_t page = 0; page < pages; ++page) {
      std::byte const* const at = part.pages.data() + (page * memory.heads + head) * std::int64_t{f.bytes()};
      cache_page_header const header = saved_part<T>::header_of(at, f);
      auto const marked = static_cast<std::uint32_t>(popcount(header.retained));
      check<corrupt_data>(header.rows == marked, "load_cache: page ", page, " has retained ", marked,
                          " tokens but says ", header.rows);
      std::uint32_t const first = marked > 0 ? count : 0;
      check<corrupt_data>(header.first_row == first, "load_cache: page ", page, " has retained tokens from number ",
                          header.first_row, " on but must have them from ", first);
      count += marked;
    }
    check<corrupt_data>(count == part.counts[static_cast<std::size_t>(head)], "load_cache: pages have retained ", count,
                        " tokens of a head but its count is ", part.counts[static_cast<std::size_t>(head)]);
  }
}

/// Copies a part into a slot and blocks of a cache. Waits.
template <class T, Executor Exec>
void restore_part(Exec const& exec, cache_memory<T> const& memory, saved_part<T> const& part,
                  std::vector<std::int32_t> const& table, std::int64_t slot, std::int64_t tokens) {
  cache_page_format const& f = memory.format;
  std::int64_t const block_bytes = memory.page_bytes(1);
  auto const send = [&](auto const* from, std::int64_t count, auto* to) {
    exec.copy(array_view<std::remove_cvref_t<decltype(*to)> const>(from, count),
              array_view<std::remove_cvref_t<decltype(*to)>>(to, count));
  };
  for (std::size_t page = 0; page < table.size(); ++page) {
    send(part.pages.data() + page * static_cast<std::size_t>(block_bytes), block_bytes, memory.page(table[page], 0));
  }
  std::int64_t const row = saved_part<T>::row_values(f);
  T const* rows = part.rows.data();
  for (std::int64_t head = 0; head < memory.heads; ++head) {
    std::int64_t const values = part.counts[static_cast<std::size_t>(head)] * row;
    send(rows, values, memory.retained_row(slot, head, 0, 0, 0));
    rows += values;
  }
  std::vector<std::uint32_t> const refused(part.counts.size());
  send(part.counts.data(), memory.heads, memory.row_counts + memory.head_of(slot, 0));
  send(refused.data(), memory.heads, memory.refused_rows + memory.head_of(slot, 0));
  send(part.thresholds.data(), 2 * memory.heads, memory.thresholds + 2 * memory.head_of(slot, 0));
  std::vector<T> tail(static_cast<std::size_t>(memory.tail_values(1)));
  cache_memory<T> host = memory;
  host.tail = tail.data();
  T const* open = part.open.data();
  for (auto token = static_cast<std::int64_t>(table.size()) * cache_page_format::tokens; token < tokens; ++token) {
    for (int layer = 0; layer < f.layers; ++layer) {
      for (std::int64_t i = 0; i < 2 * memory.heads; ++i, open += f.channels) {
        std::memcpy(static_cast<void*>(host.tail_row(0, layer, static_cast<int>(i % 2), i / 2, token)), open,
                    sizeof(T) * static_cast<std::size_t>(f.channels));
      }
    }
  }
  send(tail.data(), memory.tail_values(1), memory.tail + slot * memory.tail_values(1));
  exec.wait();
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
