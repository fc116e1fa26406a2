// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/core/crc32c.hpp>

#include "support/catch.hpp"

namespace {

/// Bit by bit, as the definition has it: the message times x^32, modulo the polynomial, all coefficients reversed.
std::uint32_t slow_crc32c(std::vector<std::uint8_t> const& bytes) {
  std::uint32_t state = 0xffffffffU;
  for (std::uint8_t const byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      bool const odd = ((state ^ (byte >> bit)) & 1U) != 0;
      state = (state >> 1) ^ (odd ? 0x82f63b78U : 0U);
    }
  }
  return ~state;
}

std::vector<std::uint8_t> random_bytes(std::size_t size) {
  std::mt19937 random(static_cast<unsigned>(size) + 1);
  std::vector<std::uint8_t> bytes(size);
  for (auto& byte : bytes) {
    byte = static_cast<std::uint8_t>(random());
  }
  return bytes;
}

}  // namespace

TEST_CASE("the check value of CRC-32C comes out in a constant expression", "[host][crc32c]") {
  STATIC_REQUIRE(tessera::crc32c("123456789", 9) == 0xe3069283U);
  STATIC_REQUIRE(tessera::crc32c("", 0) == 0U);
}

TEST_CASE("the iSCSI standard's test vectors come out", "[host][crc32c]") {
  std::vector<std::uint8_t> bytes(32, 0x00);
  CHECK(tessera::crc32c(bytes.data(), bytes.size()) == 0x8a9136aaU);
  bytes.assign(32, 0xff);
  CHECK(tessera::crc32c(bytes.data(), bytes.size()) == 0x62a8ab43U);
  for (std::size_t i = 0; i < 32; ++i) {
    bytes[i] = static_cast<std::uint8_t>(i);
  }
  CHECK(tessera::crc32c(bytes.data(), bytes.size()) == 0x46dd794eU);
}

TEST_CASE("bytes and tables take a state to the same one", "[host][crc32c]") {
  constexpr tessera::crc32c_table<4> table;
  auto const bytes = random_bytes(64);
  std::uint32_t by_byte = ~0U;
  std::uint32_t by_table = ~0U;
  std::uint32_t by_table_word = ~0U;
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      word |= std::uint32_t{bytes[i + j]} << (8 * j);
      by_byte = tessera::crc32c_byte(by_byte, bytes[i + j]);
      by_table = table.byte(by_table, bytes[i + j]);
    }
    by_table_word = table.word(by_table_word, word);
  }
  CHECK(~by_byte == slow_crc32c(bytes));
  CHECK(by_table == by_byte);
  CHECK(by_table_word == by_byte);
}

TEST_CASE("a checksum continues and combines at every cut", "[host][crc32c]") {
  auto const bytes = random_bytes(133);
  std::uint32_t const whole = slow_crc32c(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    std::uint32_t const front = tessera::crc32c(bytes.data(), cut);
    std::size_t const rest = bytes.size() - cut;
    CHECK(tessera::crc32c(bytes.data() + cut, rest, front) == whole);
    CHECK(tessera::crc32c_combine(front, tessera::crc32c(bytes.data() + cut, rest), rest) == whole);
  }
}

TEST_CASE("combining passes over more zero bytes than memory holds", "[host][crc32c]") {
  constexpr std::uint64_t large = std::uint64_t{1} << 40;
  constexpr std::uint32_t once = tessera::crc32c_combine(0x12345678U, 0U, large + 5);
  constexpr std::uint32_t twice = tessera::crc32c_combine(tessera::crc32c_combine(0x12345678U, 0U, large), 0U, 5);
  STATIC_REQUIRE(once == twice);
  STATIC_REQUIRE(once != tessera::crc32c_combine(0x12345678U, 0U, 5));
}

TEST_CASE("every single flipped bit changes the checksum", "[host][crc32c]") {
  auto bytes = random_bytes(40);
  std::uint32_t const before = tessera::crc32c(bytes.data(), bytes.size());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto const mask = static_cast<std::uint8_t>(1U << (bit % 8));
    bytes[bit / 8] ^= mask;
    CHECK(tessera::crc32c(bytes.data(), bytes.size()) != before);
    bytes[bit / 8] ^= mask;
  }
}
