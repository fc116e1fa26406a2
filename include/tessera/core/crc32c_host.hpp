// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// CRC-32C on the host, fast: by the processor's own instruction where it has one, else eight bytes at a time by table.
///
///     auto sum = tessera::crc32c_host("123456789", 9);             // 0xe3069283, as crc32c gives
///     sum = tessera::crc32c_host(more.data(), more.size(), sum);   // continues
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/core/crc32c.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

inline constexpr crc32c_table<8> crc32c_host_table;

inline std::uint64_t crc32c_word_at(std::byte const* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

/// The state after `size` more bytes, eight at a time.
inline std::uint32_t crc32c_sliced(std::byte const* bytes, std::size_t size, std::uint32_t state) {
  auto const& entry = crc32c_host_table.entry;
  if constexpr (std::endian::native == std::endian::little) {
    for (; size >= 8; size -= 8, bytes += 8) {
      std::uint64_t const word = crc32c_word_at(bytes) ^ state;
      state = 0;
      for (int i = 0; i < 8; ++i) {
        state ^= entry[7 - i][(word >> (8 * i)) & 255U];
      }
    }
  }
  for (; size != 0; --size, ++bytes) {
    state = crc32c_host_table.byte(state, static_cast<std::uint8_t>(*bytes));
  }
  return state;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

inline bool has_crc32c_instruction() {
  return __builtin_cpu_supports("sse4.2") != 0;
}

/// The state after `size` more bytes. Three pieces run side by side, since the instruction takes three cycles but can
/// start in each cycle. The factor that joins their checksums is constant.
__attribute__((target("sse4.2"))) inline std::uint32_t crc32c_hardware(std::byte const* bytes, std::size_t size,
                                                                       std::uint32_t state) {
  constexpr std::size_t piece = 4096;
  constexpr std::uint32_t one_piece = crc32c_factor(piece);
  for (; size >= 3 * piece; size -= 3 * piece, bytes += 3 * piece) {
    std::uint64_t a = state;
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    for (std::size_t i = 0; i < piece; i += 8) {
      a = __builtin_ia32_crc32di(a, crc32c_word_at(bytes + i));
      b = __builtin_ia32_crc32di(b, crc32c_word_at(bytes + piece + i));
      c = __builtin_ia32_crc32di(c, crc32c_word_at(bytes + 2 * piece + i));
    }
    state = crc32c_combine_with(static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b), one_piece);
    state = crc32c_combine_with(state, static_cast<std::uint32_t>(c), one_piece);
  }
  for (; size >= 8; size -= 8, bytes += 8) {
    state = static_cast<std::uint32_t>(__builtin_ia32_crc32di(state, crc32c_word_at(bytes)));
  }
  for (; size != 0; --size, ++bytes) {
    state = __builtin_ia32_crc32qi(state, static_cast<std::uint8_t>(*bytes));
  }
  return state;
}

#else

inline bool has_crc32c_instruction() {
  return false;
}

inline std::uint32_t crc32c_hardware(std::byte const* bytes, std::size_t size, std::uint32_t state) {
  return crc32c_sliced(bytes, size, state);
}

#endif

}  // namespace detail

/// The checksum of `size` bytes; if `seed` is the checksum of bytes that precede them, the checksum of both together.
inline std::uint32_t crc32c_host(void const* bytes, std::size_t size, std::uint32_t seed = 0) {
  auto const* const first = static_cast<std::byte const*>(bytes);
  return ~(detail::has_crc32c_instruction() ? detail::crc32c_hardware(first, size, ~seed)
                                            : detail::crc32c_sliced(first, size, ~seed));
}

}  // namespace v0
}  // namespace tessera
