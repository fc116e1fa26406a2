// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/entropy/byte_blocks.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

std::vector<std::byte> round_trip(std::vector<std::byte> const& bytes, std::size_t& coded_size) {
  std::vector<std::byte> coded;
  append_coded_bytes(bytes.data(), bytes.size(), coded);
  coded_size = coded.size();
  std::vector<std::byte> found(bytes.size(), std::byte{0xa5});
  CHECK(read_coded_bytes(coded.data(), coded.size(), found.data(), found.size()) == coded.size());
  return found;
}

/// Two 4-bit codes of normal values to a byte.
std::vector<std::byte> codes(std::size_t count) {
  std::vector<std::byte> bytes;
  auto const code = [](std::uint64_t i) {
    double const value = 7.5 + 2.6 * static_cast<double>(testing::gauss{}.value(1, i));
    return static_cast<unsigned>(std::fmin(std::fmax(value, 0), 15));
  };
  for (std::uint64_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::byte>(code(2 * i) | code(2 * i + 1) << 4));
  }
  return bytes;
}

}  // namespace

TEST_CASE("bytes come back, whatever they are", "[host]") {
  std::size_t coded = 0;
  for (std::size_t size : std::vector<std::size_t>{0, 1, 2, 519, 65535, 65536, 65537, 200001}) {
    CAPTURE(size);
    auto const normal = codes(size);
    CHECK(round_trip(normal, coded) == normal);
    std::vector<std::byte> const same(size, std::byte{0});
    CHECK(round_trip(same, coded) == same);
    std::vector<std::byte> any;
    for (std::uint64_t i = 0; i < size; ++i) {
      any.push_back(static_cast<std::byte>(testing::hash(3, i)));
    }
    CHECK(round_trip(any, coded) == any);
    CHECK(coded <= size + 5 * (size / 65536 + 1));
  }
}

TEST_CASE("bytes take little more than their entropy", "[host]") {
  auto const bytes = codes(65536);
  double counts[256] = {};
  for (std::byte byte : bytes) {
    ++counts[static_cast<std::size_t>(byte)];
  }
  double bits = 0;
  for (double count : counts) {
    bits += count > 0 ? -count * std::log2(count / 65536) : 0;
  }
  std::size_t coded = 0;
  round_trip(bytes, coded);
  CHECK(static_cast<double>(coded - 520) < 1.01 * bits / 8);
  CHECK(coded < 58000);
}

TEST_CASE("damaged blocks are refused or differ, and nothing is read outside of them", "[host]") {
  auto const bytes = codes(3000);
  std::vector<std::byte> coded;
  append_coded_bytes(bytes.data(), bytes.size(), coded);
  std::vector<std::byte> found(bytes.size());
  for (std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{100}, coded.size() - 1}) {
    std::vector<std::byte> const shorter(coded.begin(), coded.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_THROWS_AS(read_coded_bytes(shorter.data(), shorter.size(), found.data(), found.size()), corrupt_data);
  }
  int unnoticed = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    auto damaged = coded;
    damaged[testing::hash(1, i) % damaged.size()] ^= static_cast<std::byte>(1 + testing::hash(2, i) % 255);
    try {
      read_coded_bytes(damaged.data(), damaged.size(), found.data(), found.size());
      unnoticed += found == bytes;
    } catch (corrupt_data const&) {
    }
  }
  CHECK(unnoticed == 0);
}

TEST_CASE("null pointers are not coded, and nothing is decoded from or to them", "[host]") {
  std::vector<std::byte> bytes(8);
  std::vector<std::byte> coded;
  CHECK_THROWS_WITH(append_coded_bytes(nullptr, 8, coded),
                    "append_coded_bytes: the bytes have no memory but 8 elements");
  CHECK(coded.empty());
  CHECK_NOTHROW(append_coded_bytes(nullptr, 0, coded));
  append_coded_bytes(bytes.data(), bytes.size(), coded);
  CHECK_THROWS_WITH(read_coded_bytes(nullptr, 12, bytes.data(), bytes.size()),
                    "read_coded_bytes: the coded bytes have no memory but 12 elements");
  CHECK_THROWS_WITH(read_coded_bytes(coded.data(), coded.size(), nullptr, 8),
                    "read_coded_bytes: the bytes have no memory but 8 elements");
}
