// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/tile/codes/join_bytes.hpp>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("bytes are permuted as a selector says", "[host]") {
  serial_group<32> const group;
  CHECK(permute_bytes(group, 0x03020100U, 0x13121110U, 0x5140U) == 0x11011000U);
  CHECK(permute_bytes(group, 0x03020100U, 0x13121110U, 0x7362U) == 0x13031202U);
  CHECK(permute_bytes(group, 0x03020100U, 0x13121110U, 0x0000U) == 0x00000000U);
  CHECK(permute_bytes(group, 0xffeeddccU, 0x13121110U, 0x3210U) == 0xffeeddccU);
  CHECK(permute_bytes(group, 0xffeeddccU, 0x13121110U, 0x4567U) == 0x10111213U);
}

TEST_CASE("bits are chosen by a mask", "[host]") {
  serial_group<32> const group;
  CHECK(choose_bits(group, 0x80808080U, 0xffffffffU, 0x12345678U) == 0x92b4d6f8U);
  CHECK(choose_bits(group, 0U, 0xffffffffU, 0x12345678U) == 0x12345678U);
  CHECK(choose_bits(group, ~0U, 0xabcdef01U, 0x12345678U) == 0xabcdef01U);
}
