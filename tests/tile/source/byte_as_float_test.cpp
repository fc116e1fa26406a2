// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/byte_as_float.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("every byte of a word becomes 2^23 more as a float", "[host]") {
  serial_group<32> const group{};
  for (int which = 0; which < 4; ++which) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t const others = 0xa5c3965aU & ~(255U << (8 * which));
      REQUIRE(byte_as_float(group, others | byte << (8 * which), which) == 8388608.0F + static_cast<float>(byte));
    }
  }
}
