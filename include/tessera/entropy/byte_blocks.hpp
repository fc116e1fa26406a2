// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Entropy-coded bytes of any kind, coded by how often each value occurs: blocks of 64 KiB, each with its own rANS
/// table.
///
///     std::vector<std::byte> coded;
///     tessera::append_coded_bytes(bytes.data(), bytes.size(), coded);
///     std::size_t const taken = tessera::read_coded_bytes(coded.data(), coded.size(), bytes.data(), bytes.size());
///
/// The layout of a block, with all integers little-endian:
///
///     words       4 bytes: 16-bit words that follow; all ones: the bytes follow as they are, to a multiple of 2
///     state       4 bytes, the coder's
///     table       512 bytes: 256 16-bit frequencies that sum to 4096
///     words       in the order in which the decoder wants them
///
/// A block that would not become shorter is stored uncoded. Decoding reads nothing outside of the bytes it is given. It
/// throws corrupt_data for bytes that no encoder wrote, as far as that can be detected; checksums are up to the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/little_endian.hpp>
#include <tessera/entropy/frequency_table.hpp>
#include <tessera/entropy/rans_coder.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

using byte_coder = rans_coder<12>;
inline constexpr std::size_t byte_block = std::size_t{1} << 16;
inline constexpr std::uint32_t bytes_as_they_are = 0xffffffffU;

/// Frequencies in proportion to counts, at least 1 for each count that is not 0. The largest one takes up the rest.
inline byte_coder::model_type fit_bytes(std::byte const* bytes, std::size_t size) {
  constexpr std::uint32_t total = byte_coder::slots;
  std::uint32_t counts[256] = {};
  for (std::size_t i = 0; i < size; ++i) {
    ++counts[static_cast<std::uint8_t>(bytes[i])];
  }
  byte_coder::model_type model{};
  std::uint32_t sum = 0;
  int largest = 0;
  for (int symbol = 0; symbol < 256; ++symbol) {
    auto const share = static_cast<std::uint32_t>(std::uint64_t{counts[symbol]} * (total - 256) / max(size, 1));
    model.frequency[symbol] = static_cast<std::uint16_t>(counts[symbol] == 0 ? 0 : share + 1);
    sum += model.frequency[symbol];
    largest = counts[symbol] > counts[largest] ? symbol : largest;
  }
  int const other = largest == 0 ? 1 : 0;
  if (sum == model.frequency[largest]) {  // one symbol alone: a table needs two
    model.frequency[other] = 1;
    ++sum;
  }
  model.frequency[largest] = static_cast<std::uint16_t>(model.frequency[largest] + total - sum);
  return model;
}

template <class Unsigned>
void append_number(std::vector<std::byte>& out, Unsigned value) {
  std::byte bytes[sizeof(value)];
  store_little_endian(bytes, value);
  out.insert(out.end(), bytes, bytes + sizeof(value));
}

inline void check_bytes(char const* function, char const* what, std::byte const* bytes, std::size_t size) {
  check_memory(function, what, array_view<std::byte const>(bytes, static_cast<std::int64_t>(size)));
}

inline void append_byte_block(std::byte const* bytes, std::size_t size, std::vector<std::byte>& out) {
  auto const model = fit_bytes(bytes, size);
  auto const table = byte_coder::make_encode_table(model);
  auto state = byte_coder::start();
  std::vector<std::uint16_t> words;
  for (std::size_t i = size; i-- > 0;) {
    if (auto const spilled = byte_coder::push(state, static_cast<std::uint8_t>(bytes[i]), table); spilled.occurred) {
      words.push_back(spilled.word);
    }
  }
  if (8 + 512 + 2 * words.size() >= size + 4) {
    append_number(out, bytes_as_they_are);
    out.insert(out.end(), bytes, bytes + size);
    out.resize(out.size() + size % 2);
    return;
  }
  append_number(out, static_cast<std::uint32_t>(words.size()));
  append_number(out, std::uint32_t{state});
  for (std::uint16_t frequency : model.frequency) {
    append_number(out, frequency);
  }
  for (std::size_t i = words.size(); i-- > 0;) {
    append_number(out, words[i]);
  }
}

/// Decodes a block, and gives how many bytes of `coded` it took.
inline std::size_t read_byte_block(std::byte const* coded, std::size_t given, std::byte* bytes, std::size_t size) {
  constexpr char const* where = "read_coded_bytes";
  check<corrupt_data>(given >= 4, where, ": a block has ", given, " bytes but needs ", 4);
  std::uint32_t const words = load_little_endian<std::uint32_t>(coded);
  bool const is_plain = words == bytes_as_they_are;
  std::size_t const taken = is_plain ? 4 + align_up(size, 2) : 8 + 512 + 2 * std::size_t{words};
  check<corrupt_data>(given >= taken, where, ": a block has ", given, " bytes but needs ", taken);
  if (is_plain) {
    std::memcpy(bytes, coded + 4, size);
    return taken;
  }
  byte_coder::decode_state state = load_little_endian<std::uint32_t>(coded + 4);
  check<corrupt_data>(byte_coder::is_state(state), where, ": a state is ", state, " but must be below ", 1U << 31);
  byte_coder::model_type model;
  for (int symbol = 0; symbol < 256; ++symbol) {
    model.frequency[symbol] = load_little_endian<std::uint16_t>(coded + 8 + 2 * symbol);
  }
  check<corrupt_data>(model.is_valid(), where, ": the frequencies of a block do not sum to ", byte_coder::slots);
  byte_coder::decode_table table;
  byte_coder::make_decode_table(model, table);
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(byte_coder::pop(state, table));
    if (byte_coder::wants_word(state)) {
      check<corrupt_data>(next < words, where, ": a block wants more words than its ", words);
      byte_coder::feed(state, load_little_endian<std::uint16_t>(coded + 520 + 2 * std::size_t{next}));
      ++next;
    }
  }
  check<corrupt_data>(next == words && byte_coder::finished(state), where, ": a block has taken ", next,
                      " words but has ", words);
  return taken;
}

}  // namespace detail

/// Appends the coded form of `size` bytes, for read_coded_bytes(). Throws value_error if `bytes` is null but `size` is
/// not 0.
inline void append_coded_bytes(std::byte const* bytes, std::size_t size, std::vector<std::byte>& out) {
  detail::check_bytes("append_coded_bytes", "bytes", bytes, size);
  for (std::size_t first = 0; first < size; first += detail::byte_block) {
    detail::append_byte_block(bytes + first, min(size - first, detail::byte_block), out);
  }
}

/// Decodes `size` bytes, and gives how many coded bytes they took. Throws corrupt_data, and value_error for a null
/// pointer where there are bytes.
inline std::size_t read_coded_bytes(std::byte const* coded, std::size_t given, std::byte* bytes, std::size_t size) {
  detail::check_bytes("read_coded_bytes", "coded bytes", coded, given);
  detail::check_bytes("read_coded_bytes", "bytes", bytes, size);
  std::size_t taken = 0;
  for (std::size_t first = 0; first < size; first += detail::byte_block) {
    taken +=
        detail::read_byte_block(coded + taken, given - taken, bytes + first, min(size - first, detail::byte_block));
  }
  return taken;
}

}  // namespace v0
}  // namespace tessera
