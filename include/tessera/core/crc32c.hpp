// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// CRC-32C (Castagnoli), the checksum of iSCSI and ext4: of bytes, of bytes that continue others, and of two pieces
/// whose checksums are known.
///
///     constexpr auto whole = tessera::crc32c("123456789", 9);        // 0xe3069283
///     constexpr auto front = tessera::crc32c("1234", 4);
///     tessera::crc32c("56789", 5, front) == whole;                   // continues
///     constexpr auto back = tessera::crc32c("56789", 5);
///     tessera::crc32c_combine(front, back, 5) == whole;              // computed apart, then joined
///
/// All functions run on host and device and in constant expressions. `crc32c_host` (core/crc32c_host.hpp) gives the
/// same number an order of magnitude faster on a CPU. A kernel that sums much data keeps a `crc32c_table<4>` in shared
/// memory.
///
/// A *state* below is the complement of a checksum, which more bytes can be added to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

template <class T>
concept ByteLike = std::is_same_v<T, std::byte> || std::is_same_v<T, std::uint8_t> || std::is_same_v<T, char>;

/// The polynomial without x^32. Its highest coefficient is in the lowest bit, as everywhere in this file.
inline constexpr std::uint32_t crc32c_polynomial = 0x82f63b78U;

/// The polynomial 1, and x^8, by which one more byte multiplies.
inline constexpr std::uint32_t crc32c_one = 0x80000000U;
inline constexpr std::uint32_t crc32c_one_byte = 0x00800000U;

/// Multiplies by x, modulo the polynomial.
TESSERA_FN constexpr std::uint32_t crc32c_times_x(std::uint32_t value) {
  return (value >> 1) ^ (crc32c_polynomial & (0U - (value & 1U)));
}

/// The product of two polynomials, modulo the polynomial.
TESSERA_FN constexpr std::uint32_t crc32c_multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (int power = 0; power < 32; ++power) {
    product ^= b & (0U - (a >> 31));
    a <<= 1;
    b = crc32c_times_x(b);
  }
  return product;
}

/// The state that bit `from_top` below the highest bit of a byte or word has become once that byte or word is
/// processed.
constexpr std::uint32_t crc32c_column_of(int from_top) {
  std::uint32_t value = crc32c_polynomial;
  for (int i = 0; i < from_top; ++i) {
    value = (value >> 1) ^ (crc32c_polynomial & (0U - (value & 1U)));
  }
  return value;
}

template <int FromTop>
inline constexpr std::uint32_t crc32c_column = crc32c_column_of(FromTop);

/// Processes `sizeof...(Bits)` bits: the sum of the columns of those that are set.
template <int... Bits>
TESSERA_FN constexpr std::uint32_t crc32c_pass(std::uint32_t value, std::integer_sequence<int, Bits...>) {
  constexpr int count = static_cast<int>(sizeof...(Bits));
  return ((crc32c_column<count - 1 - Bits> & (0U - ((value >> Bits) & 1U))) ^ ...);
}

}  // namespace detail

/// The state after one more byte.
TESSERA_FN constexpr std::uint32_t crc32c_byte(std::uint32_t state, std::uint8_t byte) {
  return (state >> 8) ^ detail::crc32c_pass((state ^ byte) & 255U, std::make_integer_sequence<int, 8>());
}

/// The checksum of `size` bytes; if `seed` is the checksum of bytes that precede them, the checksum of both together.
template <detail::ByteLike Byte>
TESSERA_FN constexpr std::uint32_t crc32c(Byte const* bytes, std::size_t size, std::uint32_t seed = 0) {
  std::uint32_t state = ~seed;
  for (std::size_t i = 0; i < size; ++i) {
    state = crc32c_byte(state, static_cast<std::uint8_t>(bytes[i]));
  }
  return ~state;
}

/// The factor by which `size` further bytes multiply a checksum: x^(8 size), by squaring. Compute it once where many
/// pieces have one size.
TESSERA_FN constexpr std::uint32_t crc32c_factor(std::uint64_t size) {
  std::uint32_t factor = detail::crc32c_one;
  std::uint32_t power = detail::crc32c_one_byte;
  for (; size != 0; size >>= 1) {
    if ((size & 1U) != 0) {
      factor = detail::crc32c_multiply(factor, power);
    }
    power = detail::crc32c_multiply(power, power);
  }
  return factor;
}

/// The checksum of two pieces in a row, from the checksum of each and `crc32c_factor` of the second one's size.
TESSERA_FN constexpr std::uint32_t crc32c_combine_with(std::uint32_t front, std::uint32_t back, std::uint32_t factor) {
  return detail::crc32c_multiply(front, factor) ^ back;
}

/// The checksum of two pieces in a row, from the checksum of each and the second one's size in bytes.
TESSERA_FN constexpr std::uint32_t crc32c_combine(std::uint32_t front, std::uint32_t back, std::uint64_t back_size) {
  return crc32c_combine_with(front, back, crc32c_factor(back_size));
}

/// Lookup tables for `crc32c_byte`, and for four bytes at a time. `entry[s][b]` is byte `b` with `s` zero bytes behind
/// it; words, whose lowest bits are the first byte, need four slices.
template <int Slices>
struct crc32c_table {
  std::uint32_t entry[Slices][256]{};  ///< entry[s][b]: the CRC of byte b with s zero bytes behind it

  TESSERA_FN constexpr crc32c_table() {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t value = byte;
      for (int slice = 0; slice < Slices; ++slice) {
        value = crc32c_byte(value, 0);
        entry[slice][byte] = value;
      }
    }
  }

  /// The state after one more byte.
  TESSERA_FN constexpr std::uint32_t byte(std::uint32_t state, std::uint8_t byte) const {
    return (state >> 8) ^ entry[0][(state ^ byte) & 255U];
  }

  /// The state after four more bytes, the lowest first.
  TESSERA_FN constexpr std::uint32_t word(std::uint32_t state, std::uint32_t word) const {
    static_assert(Slices >= 4, "tessera: crc32c_table<Slices>::word needs four slices, one for each byte");
    state ^= word;
    return entry[3][state & 255U] ^ entry[2][(state >> 8) & 255U] ^ entry[1][(state >> 16) & 255U] ^
           entry[0][state >> 24];
  }
};

}  // namespace v0
}  // namespace tessera
