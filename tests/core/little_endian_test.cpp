// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/core/little_endian.hpp>

#include "support/catch.hpp"

using tessera::load_little_endian;
using tessera::store_little_endian;

namespace {

/// Writes values between other bytes, at every offset, and reads them back.
template <class Unsigned, class Byte>
void check_values() {
  constexpr std::size_t size = sizeof(Unsigned);
  std::mt19937_64 random(5);
  std::vector<Unsigned> values = {0, 1, static_cast<Unsigned>(~Unsigned{0}),
                                  static_cast<Unsigned>(Unsigned{1} << (8 * size - 1))};
  for (int i = 0; i < 100; ++i) {
    values.push_back(static_cast<Unsigned>(random()));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::vector<Byte> bytes(size + 16, static_cast<Byte>(0x5a));
    std::size_t const at = 1 + i % 8;
    store_little_endian(bytes.data() + at, values[i]);
    for (std::size_t index = 0; index < bytes.size(); ++index) {
      bool const is_of_value = index >= at && index < at + size;
      std::uint64_t const expected =
          is_of_value ? (std::uint64_t{values[i]} / (std::uint64_t{1} << 8 * (index - at))) % 256 : 0x5a;
      REQUIRE(static_cast<std::uint8_t>(bytes[index]) == expected);
    }
    REQUIRE(load_little_endian<Unsigned>(bytes.data() + at) == values[i]);
  }
}

}  // namespace

TEST_CASE("integers are written and read at any address, the lowest byte first", "[host]") {
  check_values<std::uint8_t, std::byte>();
  check_values<std::uint16_t, std::uint8_t>();
  check_values<std::uint32_t, std::int8_t>();
  check_values<std::uint32_t, std::uint8_t>();
  check_values<std::uint64_t, std::byte>();
  check_values<std::uint64_t, char>();
}

TEST_CASE("integers are read while a program is compiled", "[host]") {
  static constexpr std::uint8_t bytes[] = {0xfe, 0x80, 0x01, 0xff};
  static_assert(load_little_endian<std::uint16_t>(bytes) == 0x80fe);
  static_assert(load_little_endian<std::uint32_t>(bytes) == 0xff0180fe);
  CHECK(load_little_endian<std::uint16_t>(bytes + 2) == 0xff01);
}
