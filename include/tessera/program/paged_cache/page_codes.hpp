// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `page_codes<Q>`: how the codes of a Quantizer are packed where a page holds them: one after another, without gaps.
///
///     using three_bits = tessera::page_codes<tessera::asymmetric_quantizer<3, 32>>;
///     unsigned char packed[three_bits::bytes_of(64)];                    // 24
///     three_bits::put(packed, 0, fields);                                // of eight codes, in the first three bytes
///     std::uint8_t const fifth = three_bits::get(packed, 4);
///
/// Code i has bits i * bits to i * bits + bits - 1; bit b of all is bit b % 8 of byte b / 8. Eight codes take whole
/// bytes, however many bits they have, so that lanes write eight at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The bits of a quantizer's codes: its member `bits`, or all bits of the codes' type.
template <class Q>
inline constexpr int bits_of_code = 8 * static_cast<int>(sizeof(typename Q::code_type));
template <class Q>
requires requires {
  Q::bits;
}
inline constexpr int bits_of_code<Q> = Q::bits;

/// The unsigned integer of so many bytes.
template <int Bytes>
using unsigned_of =
    std::conditional_t<Bytes == 1, std::uint8_t, std::conditional_t<Bytes == 2, std::uint16_t, std::uint32_t>>;

}  // namespace detail

/// Codes that have fewer bits than their type are integers. Their lower bits are kept; the uppermost of these is the
/// sign, if the type has one.
template <Quantizer Q>
struct page_codes {
  using code_type = typename Q::code_type;
  static constexpr int bits = detail::bits_of_code<Q>;  ///< bits of a code
  static constexpr int together = 8;                    ///< codes that are written together
  /// Codes of a list.
  static constexpr int size = static_cast<int>(sizeof(code_type));
  static_assert(size == 1 || size == 2 || size == 4, "tessera: pages pack codes of 1, 2 or 4 bytes");
  static_assert(bits >= 1 && bits <= 8 * size, "tessera: a code has at least one bit, and no more than its type");
  static_assert(bits == 8 * size || std::is_integral_v<code_type>,
                "tessera: codes of fewer bits than their type must be integers");

  /// The bytes of `count` codes, a multiple of eight.
  [[nodiscard]] TESSERA_FN static constexpr int bytes_of(int count) { return count / together * bits; }

  /// The bits of a code.
  [[nodiscard]] TESSERA_FN static constexpr std::uint32_t to_field(code_type code) {
    return bit_cast<detail::unsigned_of<size>>(code) & mask;
  }
  /// The code of such bits.
  [[nodiscard]] TESSERA_FN static constexpr code_type from_field(std::uint32_t field) {
    std::uint32_t extended = field;
    if constexpr (std::is_integral_v<code_type> && std::is_signed_v<code_type>) {
      constexpr std::uint32_t sign = std::uint32_t{1} << (bits - 1);
      extended = (field ^ sign) - sign;
    }
    return bit_cast<code_type>(static_cast<detail::unsigned_of<size>>(extended));
  }

  /// Writes codes 8 * octet to 8 * octet + 7, of which these are the fields.
  TESSERA_FN static constexpr void put(unsigned char* packed, int octet, std::uint32_t const (&fields)[together]) {
    unsigned char* to = packed + octet * bits;
    std::uint64_t waiting = 0;
    int filled = 0;
    for (std::uint32_t field : fields) {
      waiting |= std::uint64_t{field} << filled;
      for (filled += bits; filled >= 8; filled -= 8) {
        *to++ = static_cast<unsigned char>(waiting & 0xffU);
        waiting >>= 8;
      }
    }
  }
  /// Reads one code.
  [[nodiscard]] TESSERA_FN static constexpr code_type get(unsigned char const* packed, int index) {
    int const first = index * bits;
    std::uint64_t found = 0;
    for (int byte = first / 8; byte < divide_up(first + bits, 8); ++byte) {
      found |= std::uint64_t{packed[byte]} << (8 * (byte - first / 8));
    }
    return from_field(static_cast<std::uint32_t>(found >> first % 8) & mask);
  }

 private:
  static constexpr std::uint32_t mask = static_cast<std::uint32_t>((std::uint64_t{1} << bits) - 1);
};

}  // namespace v0
}  // namespace tessera
