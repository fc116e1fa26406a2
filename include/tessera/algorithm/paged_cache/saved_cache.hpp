// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Saves a sequence of a compressed cache as bytes and loads it again, for offloading and prefix stores.
///
///     std::vector<std::byte> const saved = tessera::save_cache(exec, cache, sequences, 3);      // sequence 3
///     auto const info = tessera::inspect_saved_cache(saved.data(), std::ssize(saved));
///     // ... take info.pages blocks and a slot, then
///     tessera::load_cache(exec, cache, saved.data(), std::ssize(saved), slot, blocks);
///     // ... its length is info.tokens, its count of sealed pages info.pages
///
/// The format, version 1, little-endian: a header of 64 bytes (saved_cache_header), then 32 bytes for each part of the
/// layers (saved_cache_part), and then four sections for each part:
///
///     numbers    2 floats a key head: thresholds; 4 bytes a key head: retained tokens
///     codes      page x head: codes of keys, codes of values
///     rest       page x head: what else a page has, in its order; rows of retained tokens are counted from the first
///                one of the head
///     open       head x retained token: its row; then token of the tail x layer x head x {key, value} x channel
///
/// With coder 1 each section is entropy-coded (byte_blocks.hpp), which makes codes about 15 % smaller and the other
/// sections hardly smaller. The checksums are CRC32C: that of the header covers its first 60 bytes, that of the content
/// covers parts and sections before they are coded. Bytes of another version, kind of cache or machine word order are
/// refused, and so are bytes that are cut off or damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/paged_cache/cache_bytes.hpp>
#include <tessera/algorithm/paged_cache/detail/cache_checks.hpp>
#include <tessera/algorithm/paged_cache/saved_part.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/crc32c_host.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/cache_sequences.hpp>

namespace tessera {
inline namespace v0 {

/// The first 64 bytes of a saved cache, all little-endian.
struct saved_cache_header {
  /// "TSRM" in memory.
  static constexpr std::uint32_t expected_magic = 0x4d525354;  // "TSRM"
  static constexpr std::uint16_t expected_version = 1;         ///< the version of this format; loading refuses others

  std::uint32_t magic;             ///< expected_magic
  std::uint16_t version;           ///< expected_version
  std::uint8_t scalar;             ///< 0: bfloat16, 1: float16
  std::uint8_t coder;              ///< saved_cache_coder
  std::uint32_t parts;             ///< parts of the cache: pairs of layers, and single layers
  std::uint32_t heads;             ///< key heads
  std::uint32_t channels;          ///< channels of a head
  std::uint32_t window;            ///< newest tokens that are not compressed
  std::uint32_t pages;             ///< sealed pages of the sequence
  std::uint32_t zero;              ///< always 0
  std::uint64_t tokens;            ///< tokens of the sequence
  std::uint64_t total_bytes;       ///< bytes of header, parts and sections
  std::uint32_t more_zero[2];      ///< always 0
  std::uint32_t content_checksum;  ///< CRC32C of all bytes behind the header, before they are coded
  std::uint32_t header_checksum;   ///< CRC32C of the 60 bytes before it
};
static_assert(sizeof(saved_cache_header) == 64);

/// How one part is kept: cache_layers in 32 bytes.
struct saved_cache_part {
  std::uint8_t layers;        ///< layers of the part, 1 or 2
  std::uint8_t key_bits;      ///< bits of a key's code
  std::uint8_t value_bits;    ///< bits of a value's code
  std::uint8_t value_groups;  ///< groups of a value's channels; those of a group share a scale
  std::uint32_t zero[7];      ///< always 0
};
static_assert(sizeof(saved_cache_part) == 32);

/// The number of tokens and of pages that a sequence needs in a cache.
struct saved_cache_info {
  std::int64_t tokens;  ///< tokens of the sequence
  std::int64_t pages;   ///< pages of 64 tokens that the sequence needs
};

namespace detail {

inline std::uint32_t checksum_of(saved_cache_header const& header) {
  return crc32c_host(&header, sizeof(header) - sizeof(header.header_checksum));
}

/// Checks that the `left` bytes after the header can hold everything that the header counts. Nothing overflows: counts
/// of a head are below 2^54, and heads are compared with a quotient.
inline void check_promises(char const* where, saved_cache_header const& header, std::byte const* parts,
                           std::uint64_t left) {
  check<corrupt_data>(header.heads >= 1 && header.channels >= 32 && header.channels <= 256, where, ": there are ",
                      header.heads, " heads of ", header.channels, " channels but must be at least 1, of 32 to 256");
  std::uint64_t const sealed = std::uint64_t{header.pages} * cache_page_format::tokens;
  check<corrupt_data>(header.tokens <= INT32_MAX && sealed <= header.tokens, where, ": there are ", header.tokens,
                      " tokens but must be at least ", sealed, ", those of ", header.pages, " pages, and at most ",
                      INT32_MAX);
  std::uint64_t const open = header.tokens - sealed;
  check<corrupt_data>(open < std::uint64_t{header.window} + 2 * cache_page_format::tokens, where, ": there are ", open,
                      " tokens in no page but the window has ", header.window);
  check<corrupt_data>(header.parts <= left / sizeof(saved_cache_part), where, ": there are ", header.parts,
                      " parts but bytes behind the header: ", left);
  left -= header.parts * sizeof(saved_cache_part);
  constexpr std::uint64_t most_per_byte = 128;  // the most bytes from one coded byte, see section_reader::read
  bool const is_coded = header.coder == static_cast<std::uint8_t>(saved_cache_coder::rans);
  std::uint64_t room = is_coded ? (left < UINT64_MAX / most_per_byte ? left * most_per_byte : UINT64_MAX) : left;
  for (std::uint32_t i = 0; i < header.parts; ++i) {
    saved_cache_part part;
    std::memcpy(&part, parts + i * sizeof(part), sizeof(part));
    check<corrupt_data>(part.layers == 1 || part.layers == 2, where, ": part ", i, " has ", int{part.layers},
                        " layers but must have 1 or 2");
    cache_page_format const format{static_cast<int>(header.channels), part.key_bits, part.value_bits, part.value_groups,
                                   part.layers};
    std::uint64_t const numbers = 2 * sizeof(float) + sizeof(std::uint32_t);
    std::uint64_t const of_token = std::uint64_t{2} * sizeof(bfloat16) * part.layers * header.channels;
    std::uint64_t const of_head = numbers + header.pages * static_cast<std::uint64_t>(format.bytes()) + open * of_token;
    check<corrupt_data>(header.heads <= room / of_head, where, ": part ", i, " has ", header.heads, " heads of ",
                        of_head, " bytes but there is room for ", room);
    room -= header.heads * of_head;
  }
}

inline saved_cache_header read_saved_header(char const* where, std::byte const* bytes, std::int64_t size) {
  saved_cache_header header;
  check_memory(where, "saved bytes", array_view<std::byte const>(bytes, size));
  check<corrupt_data>(size >= std::int64_t{sizeof(header)}, where, ": there are ", size, " bytes but a header has ",
                      sizeof(header));
  std::memcpy(&header, bytes, sizeof(header));
  check<corrupt_data>(header.magic == saved_cache_header::expected_magic, where, ": the bytes start with ",
                      header.magic, " but should with ", saved_cache_header::expected_magic);
  check<corrupt_data>(header.version == saved_cache_header::expected_version, where, ": the version is ",
                      header.version, " but this library reads ", saved_cache_header::expected_version);
  check<corrupt_data>(header.header_checksum == checksum_of(header), where, ": the header's checksum is ",
                      header.header_checksum, " but should be ", checksum_of(header));
  check<corrupt_data>(header.total_bytes == static_cast<std::uint64_t>(size), where, ": the header says ",
                      header.total_bytes, " bytes but there are ", size);
  check<corrupt_data>(header.coder <= 1 && header.scalar <= 1, where, ": the coder is ", int{header.coder},
                      " and the scalar type ", int{header.scalar}, " but both must be 0 or 1");
  check_promises(where, header, bytes + sizeof(header), static_cast<std::uint64_t>(size) - sizeof(header));
  return header;
}

/// The header, without what is known only after the sections.
template <class Cache>
saved_cache_header header_for(Cache const& cache, std::int32_t pages, std::int32_t tokens) {
  saved_cache_header header{};
  header.magic = saved_cache_header::expected_magic;
  header.version = saved_cache_header::expected_version;
  header.scalar = std::is_same_v<typename Cache::value_type, bfloat16> ? 0 : 1;
  header.parts = static_cast<std::uint32_t>(cache.parts());
  header.heads = static_cast<std::uint32_t>(cache.extents().heads);
  header.channels = static_cast<std::uint32_t>(cache.extents().channels);
  header.window = static_cast<std::uint32_t>(cache.extents().window);
  header.pages = static_cast<std::uint32_t>(pages);
  header.tokens = static_cast<std::uint64_t>(tokens);
  return header;
}

/// Checks that a cache has room for what a header counts.
template <class Cache>
void check_room(char const* where, saved_cache_header const& header, Cache const& cache, std::int64_t slot,
                std::vector<std::int32_t> const& blocks) {
  cache_extents const& extents = cache.extents();
  auto const expect = [&](char const* what, std::int64_t found, std::int64_t expected) {
    check<shape_error>(found == expected, where, ": the saved ", what, " are ", found, " but the cache's ", expected);
  };
  expect("types of values", header.scalar, std::is_same_v<typename Cache::value_type, bfloat16> ? 0 : 1);
  expect("parts", header.parts, cache.parts());
  expect("heads", header.heads, extents.heads);
  expect("channels", header.channels, extents.channels);
  expect("tokens of the window", header.window, extents.window);
  expect("pages", header.pages, static_cast<std::int64_t>(blocks.size()));
  auto const tokens = static_cast<std::int64_t>(header.tokens);
  check<shape_error>(tokens <= extents.tokens && slot >= 0 && slot < extents.slots, where, ": slot ", slot, " of ",
                     extents.slots, " has no room for ", tokens, " tokens, more than ", extents.tokens);
  for (std::int32_t block : blocks) {
    check<shape_error>(block >= 0 && block < extents.blocks, where, ": block ", block, " is none of ", extents.blocks);
  }
}

}  // namespace detail

/// Checks the header and returns how many tokens and pages the sequence needs: never more than the bytes can fill.
/// Throws corrupt_data, and value_error where there are bytes but `bytes` is null.
inline saved_cache_info inspect_saved_cache(std::byte const* bytes, std::int64_t size) {
  saved_cache_header const header = detail::read_saved_header("inspect_saved_cache", bytes, size);
  return {static_cast<std::int64_t>(header.tokens), header.pages};
}

/// Saves sequence `which` of a cross_layer_cache as bytes on the host. Its codec must be a direction_codec: the format
/// names no other. Waits.
template <Executor Exec, class Cache>
std::vector<std::byte> save_cache(Exec const& exec, Cache const& cache, cache_sequences const& sequences,
                                  std::int64_t which, saved_cache_coder coder = saved_cache_coder::rans) {
  static_assert(Cache::codec_type::has_page_format, "tessera: save_cache saves caches of a direction_codec");
  detail::check_cache_sequences("save_cache", cache.extents(), sequences);
  check<value_error>(which >= 0 && which < sequences.size(), "save_cache: sequence ", which, " is none of ",
                     sequences.size());
  detail::fetched_sequences const known("save_cache", exec, sequences, cache.extents());
  auto const at = static_cast<std::size_t>(which);
  auto const table = detail::fetched(exec, sequences.blocks[which].data, known.pages[at]);
  check<value_error>(known.slots[at] >= 0, "save_cache: the slot of sequence ", which, " is none of ",
                     cache.extents().slots);
  for (std::int32_t block : table) {
    check<value_error>(block >= 0 && block < cache.extents().blocks, "save_cache: block ", block, " of sequence ",
                       which, " is none of ", cache.extents().blocks);
  }
  std::vector<std::byte> out(sizeof(saved_cache_header));
  std::vector<saved_cache_part> parts;
  for (int part = 0; part < cache.parts(); ++part) {
    cache_page_format const& f = cache.memory(part).format;
    parts.push_back({static_cast<std::uint8_t>(f.layers),
                     static_cast<std::uint8_t>(f.key_bits),
                     static_cast<std::uint8_t>(f.value_bits),
                     static_cast<std::uint8_t>(f.value_groups),
                     {}});
  }
  detail::section_writer plain(saved_cache_coder::stored, out);
  plain.write(parts.data(), parts.size() * sizeof(saved_cache_part));
  std::uint32_t checksum = plain.checksum();
  for (int part = 0; part < cache.parts(); ++part) {
    auto found = detail::fetch_part(exec, cache.memory(part), table, known.slots[at], known.lengths[at]);
    detail::section_writer sections(coder, out);
    detail::write_part(sections, cache.memory(part).format, found);
    checksum = crc32c_host(&checksum, sizeof(checksum), sections.checksum());
  }
  saved_cache_header header = detail::header_for(cache, known.pages[at], known.lengths[at]);
  header.coder = static_cast<std::uint8_t>(coder);
  header.total_bytes = out.size();
  header.content_checksum = checksum;
  header.header_checksum = detail::checksum_of(header);
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

/// Loads a saved sequence into slot `slot` and into `blocks`, one for each page. Reads and checks everything before it
/// writes anything. Throws corrupt_data, and shape_error where the cache is of another kind or has no room. Waits.
template <Executor Exec, class Cache>
void load_cache(Exec const& exec, Cache const& cache, std::byte const* bytes, std::int64_t size, std::int64_t slot,
                std::vector<std::int32_t> const& blocks) {
  static_assert(Cache::codec_type::has_page_format, "tessera: load_cache loads caches of a direction_codec");
  using value_type = typename Cache::value_type;
  constexpr char const* where = "load_cache";
  saved_cache_header const header = detail::read_saved_header(where, bytes, size);
  detail::check_room(where, header, cache, slot, blocks);
  auto const tokens = static_cast<std::int64_t>(header.tokens);
  detail::section_reader plain(saved_cache_coder::stored, bytes + sizeof(header),
                               static_cast<std::size_t>(size) - sizeof(header));
  for (int part = 0; part < cache.parts(); ++part) {
    saved_cache_part saved;
    plain.read(&saved, sizeof(saved));
    cache_page_format const found{static_cast<int>(header.channels), saved.key_bits, saved.value_bits,
                                  saved.value_groups, saved.layers};
    check<shape_error>(found == cache.memory(part).format, where, ": part ", part, " has codes of ",
                       int{saved.key_bits}, " bits of ", int{saved.layers}, " layers but the cache's other ones");
  }
  std::uint32_t checksum = plain.checksum();
  std::byte const* at = bytes + size - plain.left();
  std::vector<detail::saved_part<value_type>> parts;
  for (int part = 0; part < cache.parts(); ++part) {
    detail::section_reader sections(static_cast<saved_cache_coder>(header.coder), at,
                                    static_cast<std::size_t>(bytes + size - at));
    parts.push_back(detail::read_part(sections, cache.memory(part), header.pages, tokens));
    at = bytes + size - sections.left();
    checksum = crc32c_host(&checksum, sizeof(checksum), sections.checksum());
  }
  check<corrupt_data>(at == bytes + size, where, ": there are bytes behind the last section: ", bytes + size - at);
  check<corrupt_data>(checksum == header.content_checksum, where, ": the content's checksum is ", checksum,
                      " but should be ", header.content_checksum);
  for (int part = 0; part < cache.parts(); ++part) {
    detail::check_rows(parts[static_cast<std::size_t>(part)], cache.memory(part));
  }
  for (int part = 0; part < cache.parts(); ++part) {
    detail::restore_part(exec, cache.memory(part), parts[static_cast<std::size_t>(part)], blocks, slot, tokens);
  }
}

}  // namespace v0
}  // namespace tessera
