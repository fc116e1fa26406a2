// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The programs of decoding one by one, as an executor with programs of its own runs them.
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"

using namespace tessera;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

/// A stream of ten blocks and the memory to decode it.
struct decoding_at_hand {
  cpu exec{.threads = 2};
  weight_array<bfloat16> weights{weight_kind::gauss, 1, 10'000};
  buffer<std::byte> stream = neuzip::encode(exec, weights.view(), {.block = 1024, .checksums = true});
  weight_array<bfloat16> decoded{10'000};
  buffer<weight_decode_table> table{1};
  weight_decoding<bfloat16> decoding;

  decoding_at_hand() {
    decoding.spec = neuzip::spec(10'000, {.block = 1024, .checksums = true});
    decoding.stream = reinterpret_cast<std::uint8_t const*>(stream.data());
    decoding.stream_bytes = stream.size();
    decoding.blocks = decoding.spec.block_count();
    decoding.weights = decoded.data();
    decoding.table = table.data();
    decoding.status = exec.status();
  }

  std::byte& plane_byte(std::int64_t block) {
    return stream[decoding.spec.planes_offset() + decoding.spec.planes_before(block) + 3];
  }
  weight_block_index& entry(std::int64_t block) {
    return reinterpret_cast<weight_block_index*>(stream.data() + decoding.spec.index_offset())[block];
  }
  std::int64_t failure() const {
    try {
      exec.wait();
    } catch (corrupt_data const& problem) {
      return problem.position();
    }
    return -1;
  }
  void decode() {
    exec.run(read_codebook<bfloat16>{decoding}, 1);
    exec.run(decode_weights<bfloat16, keep_mantissa<7>>{decoding}, decoding.blocks);
  }
  [[nodiscard]] bool is_zero(std::int64_t block) const {
    for (std::int64_t i = block * 1024; i < std::min<std::int64_t>(10'000, (block + 1) * 1024); ++i) {
      if (decoded[i].bits != 0) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace

TEST_CASE(
    "a decoder that looks at no checksums takes changed signs and mantissas, and verify_blocks makes zeros of them",
    "[host][threads]") {
  decoding_at_hand at;
  at.plane_byte(4) ^= std::byte{0x20};
  at.plane_byte(9) ^= std::byte{0x20};
  at.decoding.verify_checksums = false;
  at.decode();
  CHECK(at.failure() == -1);
  CHECK_FALSE(at.is_zero(4));
  CHECK_FALSE(at.decoded == at.weights);
  at.exec.run(verify_blocks<bfloat16>{at.decoding}, at.decoding.blocks);
  CHECK(at.failure() == 4);
  for (std::int64_t block = 0; block < 10; ++block) {
    CHECK(at.is_zero(block) == (block == 4 || block == 9));
  }
}

TEST_CASE("verify_blocks leaves sound blocks as they are", "[host][threads]") {
  decoding_at_hand at;
  at.decode();
  at.exec.run(verify_blocks<bfloat16>{at.decoding}, at.decoding.blocks);
  CHECK(at.failure() == -1);
  CHECK(at.decoded == at.weights);
}

TEST_CASE("an index entry is found only if all that it points to lies in the stream", "[host][threads]") {
  decoding_at_hand at;
  weight_block_index found;
  REQUIRE(at.decoding.find(3, found));
  weight_block_index const sound = at.entry(3);
  auto const refused = [&](weight_block_index const& entry) {
    at.entry(3) = entry;
    return !at.decoding.find(3, found);
  };
  CHECK(refused({0xffffffff, sound.words, sound.escapes}));
  CHECK(refused({sound.position, 2049, sound.escapes}));
  CHECK(refused({sound.position, 0xfffe, sound.escapes}));
  CHECK(refused({sound.position, sound.words, 513}));
  CHECK(refused({sound.position, weight_block_index::raw, 1}));
  auto const end = static_cast<std::uint32_t>((at.stream.size() - at.decoding.spec.payload_offset()) / 16);
  CHECK(refused({end - 1, 100, 0}));
  CHECK_FALSE(refused({0, weight_block_index::raw, 0}));
}

TEST_CASE("a codebook that is not sound makes every block zeros", "[host][threads]") {
  decoding_at_hand at;
  at.stream[64 + 20] ^= std::byte{1};
  at.decoded.fill_with_rubbish();
  at.decode();
  CHECK(at.failure() == 0);
  for (std::int64_t block = 0; block < 10; ++block) {
    CHECK(at.is_zero(block));
  }
}

TEST_CASE("stored weights are checked against their checksum unless that is not wanted", "[host]") {
  cpu const exec;
  weight_array<bfloat16> const weights(weight_kind::gauss, 1, 100);
  buffer<std::byte> stream = neuzip::encode(exec, weights.view());
  stream[64 + 50] ^= std::byte{1};
  weight_array<bfloat16> decoded(100);
  weight_decoding<bfloat16> decoding;
  decoding.spec = neuzip::spec(100);
  decoding.stream = reinterpret_cast<std::uint8_t const*>(stream.data());
  decoding.stream_bytes = stream.size();
  decoding.blocks = 1;
  decoding.weights = decoded.data();
  decoding.status = exec.status();
  exec.run(load_stored_weights<bfloat16>{decoding}, 1);
  CHECK_THROWS_AS(exec.wait(), corrupt_data);
  CHECK(decoded[25].bits == 0);
  decoding.verify_checksums = false;
  exec.run(load_stored_weights<bfloat16>{decoding}, 1);
  exec.wait();
  CHECK(decoded[24].bits == weights[24].bits);
  CHECK(decoded[25].bits == (weights[25].bits ^ 1));
}
