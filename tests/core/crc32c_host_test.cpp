// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/core/crc32c_host.hpp>

#include "support/catch.hpp"

TEST_CASE("the fast checksums equal the portable one for every size and alignment", "[host][crc32c]") {
  std::mt19937 random(9);
  std::vector<std::byte> bytes(40000);
  for (auto& byte : bytes) {
    byte = static_cast<std::byte>(random());
  }
  // Around one and several rounds of three 4 KiB pieces, which the hardware path takes side by side.
  std::vector<std::size_t> sizes = {12287, 12288, 12289, 12295, 24576, 24583, 39990};
  for (std::size_t size = 0; size < 40; ++size) {
    sizes.push_back(size);
  }
  for (std::size_t const size : sizes) {
    for (std::size_t offset = 0; offset < 9; ++offset) {
      std::byte const* const first = bytes.data() + offset;
      std::uint32_t const wanted = tessera::crc32c(first, size, 0xdeadbeefU);
      CHECK(tessera::crc32c_host(first, size, 0xdeadbeefU) == wanted);
      CHECK(~tessera::detail::crc32c_sliced(first, size, ~0xdeadbeefU) == wanted);
      if (tessera::detail::has_crc32c_instruction()) {
        CHECK(~tessera::detail::crc32c_hardware(first, size, ~0xdeadbeefU) == wanted);
      }
    }
  }
}

TEST_CASE("the fast checksum takes any memory and continues", "[host][crc32c]") {
  CHECK(tessera::crc32c_host("123456789", 9) == 0xe3069283U);
  CHECK(tessera::crc32c_host("56789", 5, tessera::crc32c_host("1234", 4)) == 0xe3069283U);
  CHECK(tessera::crc32c_host(nullptr, 0) == 0U);
}
