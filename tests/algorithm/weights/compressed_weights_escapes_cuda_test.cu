// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/stream_on_device.cuh"

using namespace tessera;
using tessera_test::bf16_array;
using tessera_test::device_weights;
using tessera_test::failure_of;
using tessera_test::stream_on_device;

namespace {

/// Weights of fifteen neighbouring exponents, those for which there are codes. Block i also has escapes[i] far smaller
/// weights, spread over the block and over so many exponents that no code is made for one.
bf16_array weights_with_escapes(std::vector<int> const& escapes, std::int64_t block) {
  bf16_array weights(block * std::ssize(escapes));
  for (std::int64_t i = 0; i < weights.count(); ++i) {
    std::uint64_t const random = testing::hash(5, static_cast<std::uint64_t>(i));
    auto const below_largest = static_cast<int>(std::min(random % 15, (random >> 16) % 15));
    float const mantissa = 1.0F + static_cast<float>((random >> 32) % 128) / 128;
    weights[i] = store<bfloat16>(std::ldexp((random >> 63) != 0 ? -mantissa : mantissa, -4 - below_largest));
  }
  for (std::size_t i = 0; i < escapes.size(); ++i) {
    for (int k = 0; k < escapes[i]; ++k) {
      std::int64_t const position = k * block / escapes[i];
      weights[static_cast<std::int64_t>(i) * block + position] = store<bfloat16>(std::ldexp(1.25F, -100 + k % 60));
    }
  }
  return weights;
}

/// The index entry of a block.
weight_block_index index_entry(stream_on_device const& stream, std::int64_t block) {
  weight_block_index entry;
  std::memcpy(&entry, stream.bytes.data() + stream.spec.index_offset() + 8 * block, sizeof(entry));
  return entry;
}

}  // namespace

TEST_CASE("blocks of any number of escapes decode on the device", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  std::vector<int> const escapes{0, 1, 31, 32, 33, 63, 64, 65, 159, 160, 161, 300, 511, 512, 0, 40};
  for (int block : {8192, 1024}) {
    bf16_array const weights = weights_with_escapes(escapes, block);
    stream_on_device const stream(weights, {.block = block});
    for (std::size_t i = 0; i < escapes.size(); ++i) {
      weight_block_index const entry = index_entry(stream, static_cast<std::int64_t>(i));
      CHECK((entry.escapes == escapes[i] || entry.words == weight_block_index::raw));
    }
    CHECK(index_entry(stream, 4).escapes == 33);  // not all blocks are raw
    device_weights<bfloat16> decoded(weights.count());
    CHECK(failure_of(exec, stream, 0, std::ssize(escapes), decoded) == -1);
    CHECK((decoded.download() == weights));
    CHECK(decoded.guards_are_intact());
  }
}

TEST_CASE("an escape that cannot be is reported by the device, whichever of its block it is", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  constexpr int block = 8192;
  bf16_array const weights = weights_with_escapes({3, 200, 5}, block);
  for (int which : {0, 31, 32, 100, 199}) {
    for (std::uint32_t const spoiled : {~0U, 0xffffU}) {
      stream_on_device stream(weights, {.block = block});
      weight_block_index const entry = index_entry(stream, 1);
      REQUIRE(entry.escapes == 200);
      std::int64_t const begin = stream.spec.payload_offset() + std::int64_t{entry.position} * 16 +
                                 stream.spec.escapes_offset(block, entry.words) + 4 * which;
      std::memcpy(stream.bytes.data() + begin, &spoiled, sizeof(spoiled));
      stream.upload();
      device_weights<bfloat16> decoded(weights.count());
      CHECK(failure_of(exec, stream, 0, 3, decoded) == 1);
      bf16_array const found = decoded.download();
      int wrong = 0;
      for (std::int64_t i = 0; i < found.count(); ++i) {
        wrong += found[i].bits == (i / block == 1 ? 0 : weights[i].bits) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}
