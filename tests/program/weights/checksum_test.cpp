// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/program/weights/checksum.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

std::vector<std::uint8_t> random_bytes(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::uint8_t>(testing::hash(2, i));
  }
  return bytes;
}

struct shared_checksum {
  static constexpr int lanes = 32;
  struct scratch_type {};
  std::uint8_t const* data;
  std::int64_t bytes;
  std::uint32_t seed;
  std::uint32_t* result;
  template <class Group>
  void operator()(Group const& group, std::int64_t, scratch_type&) const {
    *result = shared_crc32c(group, data, bytes, seed);
  }
};

}  // namespace

TEST_CASE("a checksum that lanes share is that of the whole, for any length and what came before", "[host]") {
  std::vector<std::uint8_t> const bytes = random_bytes(3000);
  for (std::int64_t length : {0, 1, 3, 31, 32, 33, 100, 1023, 1024, 3000}) {
    for (std::uint32_t seed : {0u, 0x12345678u}) {
      std::uint32_t const expected = crc32c(bytes.data(), static_cast<std::size_t>(length), seed);
      std::uint32_t shared = 0;
      testing::adversary{}.run(shared_checksum{bytes.data(), length, seed, &shared}, 1);
      CHECK(shared == expected);
      CHECK(shared_crc32c(serial_group<32>{}, bytes.data(), length, seed) == expected);
      CHECK(shared_crc32c(serial_group<8>{}, bytes.data(), length, seed) == expected);
    }
  }
}

TEST_CASE("a block's checksum covers the sizes in its index entry, normalizers, planes and payload, and nothing else",
          "[host]") {
  weight_stream_spec spec;
  spec.mantissa_kept = 3;
  spec.log2_block = 10;
  spec.log2_normalizer_block = 5;
  spec.block_checksums = true;
  spec.count = 3000;
  std::vector<std::uint8_t> const stream = random_bytes(static_cast<std::size_t>(spec.largest_bytes()));
  weight_block_index const entry{3, 100, 2};
  std::int64_t const block = 1;
  auto const checksum = [&](std::vector<std::uint8_t> const& bytes, weight_block_index const& of) {
    return block_checksum(serial_group<32>{}, spec, bytes.data(), block, of);
  };
  std::uint32_t const expected = checksum(stream, entry);
  std::int64_t const ranges[3][2] = {{spec.normalizers_offset() + 32, 32},
                                     {spec.planes_offset() + 512, 512},
                                     {spec.payload_offset() + 3 * 16, spec.payload_bytes(1024, entry)}};
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < stream.size(); ++i) {
    bool covered = false;
    for (auto const& range : ranges) {
      auto const position = static_cast<std::int64_t>(i);
      covered = covered || (position >= range[0] && position < range[0] + range[1]);
    }
    std::vector<std::uint8_t> changed = stream;
    changed[i] = static_cast<std::uint8_t>(changed[i] ^ 4);
    wrong += (checksum(changed, entry) != expected) == covered ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(checksum(stream, {3, 99, 2}) != expected);
  CHECK(checksum(stream, {3, 100, 3}) != expected);
  // The result is the same as one checksum over the parts one after the other.
  std::uint8_t const sizes[4] = {100, 0, 2, 0};
  std::uint32_t joined = crc32c(sizes, 4);
  for (auto const& range : ranges) {
    joined = crc32c(stream.data() + range[0], static_cast<std::size_t>(range[1]), joined);
  }
  CHECK(joined == expected);
}

TEST_CASE("a header's checksum covers its first sixty bytes", "[host]") {
  weight_stream_header header = weight_stream_spec{}.header();
  std::uint32_t const expected = checksum_of(header);
  CHECK(expected == crc32c(reinterpret_cast<std::uint8_t const*>(&header), 60));
  header.header_checksum = 5;
  CHECK(checksum_of(header) == expected);
  header.more_zero[2] = 1;
  CHECK(checksum_of(header) != expected);
}
