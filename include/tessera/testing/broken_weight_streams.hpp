// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Makes damaged streams of weights from a valid one, for tests of decoders. It changes data that decoders rely on,
/// with checksums recomputed, so that the stream passes first checks.
///
///     std::vector<std::byte> stream(valid.begin(), valid.end());
///     tessera::testing::break_weight_stream(stream, 17);        // the same changes for 17 on every machine
///
/// One to three changes are made to: the header, frequencies that still add up, index entries, whole entries that are
/// swapped, lane states, words, lists of escapes (order, doubles, positions, exponents, marks), normalizers, planes,
/// the stream's end, any byte. In one of eight streams the checksums are left as they were.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <tessera/algorithm/weights/inspect_weight_stream.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/crc32c_host.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/weights/checksum.hpp>
#include <tessera/program/weights/encode.hpp>
#include <tessera/testing/generators.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

/// What happens to checksums after the changes: `usual` recomputes all of them in seven streams of eight, `never`
/// leaves them as they were, so that they show the changes.
enum class checksum_repair { usual, never };

namespace detail {

class weight_stream_breaker {
 public:
  weight_stream_breaker(std::vector<std::byte>& stream, std::uint64_t seed)
      : stream_(stream),
        spec_(inspect_weight_stream(stream.data(), static_cast<std::int64_t>(stream.size())).spec()),
        seed_(seed) {}

  void run(checksum_repair repair) {
    for (std::int64_t changes = 1 + below(3); changes > 0; --changes) {
      change();
    }
    if (below(8) != 0 && repair == checksum_repair::usual) {
      put_checksums_right();
    }
    if (below(24) == 0) {
      stream_.resize(stream_.size() - static_cast<std::size_t>(16 * below(divide_up(size(), std::int64_t{64}))));
    }
  }

 private:
  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(hash(seed_, next_++) % static_cast<std::uint64_t>(end));
  }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(stream_.size()); }
  [[nodiscard]] std::uint8_t* bytes() { return reinterpret_cast<std::uint8_t*>(stream_.data()); }

  /// Numbers in the stream's memory; those beyond its end are left alone.
  template <class Number>
  [[nodiscard]] Number get(std::int64_t at) {
    Number number{};
    if (at >= 0 && at + std::int64_t{sizeof(number)} <= size()) {
      std::memcpy(&number, bytes() + at, sizeof(number));
    }
    return number;
  }
  template <class Number>
  void put(std::int64_t at, Number number) {
    if (at >= 0 && at + std::int64_t{sizeof(number)} <= size()) {
      std::memcpy(bytes() + at, &number, sizeof(number));
    }
  }
  /// Any number, more often one at which behaviour changes.
  template <class Number>
  [[nodiscard]] Number any() {
    constexpr std::uint32_t edges[] = {0,     1,      2,      31,         32,         0x7f,       0x80,      0xff,
                                       0x800, 0x7fff, 0x8000, 0xfffffffe, 0xffffffff, 0x7fffffff, 0x80000000};
    return static_cast<Number>(below(2) == 0 ? edges[below(15)] : static_cast<std::uint32_t>(below(0x100000000)));
  }
  template <class Number>
  void disturb(std::int64_t at) {
    auto const old = get<Number>(at);
    std::int64_t const how = below(4);
    put<Number>(at, how == 0   ? static_cast<Number>(old + 1)
                    : how == 1 ? static_cast<Number>(old - 1)
                    : how == 2 ? static_cast<Number>(old ^ (Number{1} << below(8 * std::int64_t{sizeof(Number)})))
                               : any<Number>());
  }

  void change() {
    if (spec_.block_count() == 0) {
      return below(2) == 0 ? change_header() : disturb<std::uint8_t>(below(size()));
    }
    switch (below(12)) {
      case 0:
        return change_header();
      case 1:
        return change_codebook();
      case 2:
        return change_entry(below(spec_.block_count()));
      case 3:
        return swap_entries(below(spec_.block_count()), below(spec_.block_count()));
      case 4:
        return disturb<std::uint32_t>(payload_of(below(spec_.block_count())) + 4 * below(32));
      case 5:
        return change_words(below(spec_.block_count()));
      case 6:
      case 7:
      case 8:
        return change_escapes(find_escapes());
      case 9:
        return disturb<std::uint8_t>(spec_.normalizers_offset() +
                                     below(spec_.payload_offset() - spec_.normalizers_offset() + 1));
      case 10:
        return disturb<std::uint8_t>(below(size()));
      default:
        return disturb<std::uint16_t>(spec_.payload_offset() + below(max(size() - spec_.payload_offset(), 1)));
    }
  }

  void change_header() {
    constexpr auto base = static_cast<std::int64_t>(offsetof(weight_stream_header, window_base));
    constexpr auto total = static_cast<std::int64_t>(offsetof(weight_stream_header, total_bytes));
    switch (below(4)) {
      case 0:
        return disturb<std::uint8_t>(base + below(2));
      case 1:
        put(base, static_cast<std::uint8_t>(get<std::uint8_t>(base) + below(3) - 1));
        put(base + 1, static_cast<std::uint8_t>(get<std::uint8_t>(base) + exponent_window::neighbours));
        return;
      case 2:
        return put(total, get<std::uint64_t>(total) - static_cast<std::uint64_t>(16 * below(9)) + 16);
      default:
        return disturb<std::uint8_t>(below(std::int64_t{sizeof(weight_stream_header)}));
    }
  }
  /// Gives slots of one symbol to another; sometimes the sum becomes wrong.
  void change_codebook() {
    if (spec_.codebook_size() != weight_stream_spec::codebook_bytes) {
      return spec_.codebook_size() == 0 ? change_header()
                                        : disturb<std::uint8_t>(spec_.codebook_offset() + below(spec_.codebook_size()));
    }
    std::int64_t const from = spec_.codebook_offset() + 2 * below(256);
    std::int64_t const to = spec_.codebook_offset() + 2 * below(256);
    auto const moved = static_cast<std::uint16_t>(below(get<std::uint16_t>(from) + 1));
    put(from, static_cast<std::uint16_t>(get<std::uint16_t>(from) - moved));
    put(to, static_cast<std::uint16_t>(get<std::uint16_t>(to) + moved + (below(16) == 0 ? 1 : 0)));
  }

  [[nodiscard]] std::int64_t entry_at(std::int64_t block) const { return spec_.index_offset() + 8 * block; }
  [[nodiscard]] weight_block_index entry_of(std::int64_t block) { return get<weight_block_index>(entry_at(block)); }
  [[nodiscard]] std::int64_t payload_of(std::int64_t block) { return spec_.payload_begin(entry_of(block)); }

  void change_entry(std::int64_t block) {
    weight_block_index entry = entry_of(block);
    switch (below(6)) {
      case 0:
        return disturb<std::uint32_t>(entry_at(block));
      case 1:
        return disturb<std::uint16_t>(entry_at(block) + 4);
      case 2:
        return disturb<std::uint16_t>(entry_at(block) + 6);
      case 3:
        entry.words = weight_block_index::raw;
        entry.escapes = 0;
        break;
      case 4:  // an escape less for two words more, so that all parts begin where they did
        entry.words = static_cast<std::uint16_t>(entry.words + 2);
        entry.escapes = static_cast<std::uint16_t>(entry.escapes - 1);
        break;
      default:
        entry.position = static_cast<std::uint32_t>(below(divide_up(size(), std::int64_t{16})));
    }
    put(entry_at(block), entry);
  }
  void swap_entries(std::int64_t a, std::int64_t b) {
    weight_block_index const first = entry_of(a);
    put(entry_at(a), entry_of(b));
    put(entry_at(b), first);
  }
  void change_words(std::int64_t block) {
    std::int64_t const words = max(std::int64_t{entry_of(block).words}, 1);
    disturb<std::uint16_t>(payload_of(block) + weight_stream_spec::states_bytes + 2 * below(words));
  }

  /// A block with escapes, if one of a few random blocks has any.
  [[nodiscard]] std::int64_t find_escapes() {
    std::int64_t block = below(spec_.block_count());
    for (int tries = 0; tries < 8 && entry_of(block).escapes == 0; ++tries) {
      block = below(spec_.block_count());
    }
    return block;
  }
  void change_escapes(std::int64_t block) {
    weight_block_index const entry = entry_of(block);
    if (entry.escapes == 0 || entry.words == weight_block_index::raw) {
      return change_entry(block);
    }
    std::int64_t const list = payload_of(block) + spec_.escapes_offset(spec_.coded_in(block), entry.words);
    std::int64_t const one = list + 4 * below(entry.escapes);
    std::int64_t const other = list + 4 * below(entry.escapes);
    auto const old = get<std::uint32_t>(one);
    switch (below(7)) {
      case 0:
        put(one, get<std::uint32_t>(other));
        return put(other, old);
      case 1:  // one weight is listed twice, with two exponents
        return put(other, (get<std::uint32_t>(other) & ~0xffffu) | (old & 0xffffu));
      case 2:
        return put(one, old | static_cast<std::uint32_t>(below(256)) << 24);
      case 3:
        return put(one + 2, static_cast<std::uint8_t>(below(256)));
      case 4:
        return put(one, static_cast<std::uint16_t>(spec_.weights_in(block) + below(3) - 1));
      case 5:
        return put(one, static_cast<std::uint16_t>(below(spec_.weights_in(block))));
      default:
        return disturb<std::uint32_t>(one);
    }
  }

  void put_checksums_right() {
    weight_stream_header header = get<weight_stream_header>(0);
    if (spec_.codebook_size() > 0) {
      header.content_checksum =
          crc32c_host(bytes() + spec_.codebook_offset(), static_cast<std::size_t>(spec_.codebook_size()), 0);
    } else if (spec_.coder == weight_coder::stored) {
      header.content_checksum =
          crc32c_host(bytes() + sizeof(header), static_cast<std::size_t>(size()) - sizeof(header), 0);
    }
    header.header_checksum = checksum_of(header);
    put(0, header);
    if (spec_.block_checksums) {
      put_block_checksums_right();
    }
  }
  /// Recomputes the checksums of blocks that lie in the stream; the encoder's own program knows where they are.
  void put_block_checksums_right() {
    static cpu const exec{.threads = 1};
    weight_encoding<bfloat16> finished;  // T does not matter: the spec says where parts lie
    finished.spec = spec_;
    finished.stream = bytes();
    finished.capacity = size();
    exec.run(checksum_blocks<bfloat16>{finished}, spec_.block_count());
  }

  std::vector<std::byte>& stream_;
  weight_stream_spec spec_;
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

}  // namespace detail

/// Changes a valid stream at one to three positions that decoders rely on. The same stream and seed give the same
/// changes everywhere. Throws corrupt_data for a stream that is not valid to begin with.
inline void break_weight_stream(std::vector<std::byte>& stream, std::uint64_t seed,
                                checksum_repair repair = checksum_repair::usual) {
  detail::weight_stream_breaker(stream, seed).run(repair);
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
