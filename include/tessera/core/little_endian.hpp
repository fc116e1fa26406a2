// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Loads and stores unsigned integers as bytes, lowest byte first, on any machine, at any address, on host and device.
///
///     std::byte bytes[4];
///     tessera::store_little_endian(bytes, std::uint32_t{0x01020304});             // 4, 3, 2, 1
///     auto const again = tessera::load_little_endian<std::uint32_t>(bytes);
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

template <UnsignedInteger Unsigned>
using half_of = std::conditional_t<sizeof(Unsigned) == 8, std::uint32_t,
                                   std::conditional_t<sizeof(Unsigned) == 4, std::uint16_t, std::uint8_t>>;

}  // namespace detail

/// Reads as many bytes as the type has. Byte: any type of one byte.
template <detail::UnsignedInteger Unsigned, class Byte>
TESSERA_FN constexpr Unsigned load_little_endian(Byte const* bytes) {
  static_assert(sizeof(Byte) == 1, "tessera: load_little_endian reads bytes");
  if constexpr (sizeof(Unsigned) == 1) {
    return static_cast<Unsigned>(*bytes);
  } else {  // in halves: g++ 12 makes one load of a loop only at -O3
    using half = detail::half_of<Unsigned>;
    Unsigned const low = load_little_endian<half>(bytes);
    Unsigned const high = load_little_endian<half>(bytes + sizeof(half));
    return static_cast<Unsigned>(low | (high << (8 * sizeof(half))));
  }
}

/// Writes as many bytes as the type has.
template <detail::UnsignedInteger Unsigned, class Byte>
TESSERA_FN constexpr void store_little_endian(Byte* bytes, Unsigned value) {
  static_assert(sizeof(Byte) == 1, "tessera: store_little_endian writes bytes");
  for (int i = 0; i < static_cast<int>(sizeof(Unsigned)); ++i) {
    bytes[i] = static_cast<Byte>(static_cast<std::uint8_t>(value >> (8 * i)));
  }
}

}  // namespace v0
}  // namespace tessera
