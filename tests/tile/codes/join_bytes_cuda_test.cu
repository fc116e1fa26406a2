// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/codes/join_bytes.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/serial/group.hpp>

#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

constexpr int joined_words = 4096;

/// Both words of a and b that are made at place i.
template <class G>
TESSERA_FN void join_words(G const& group, int i, std::uint32_t* results) {
  auto const word = [i](std::uint64_t seed) {
    return static_cast<std::uint32_t>(testing::hash(seed, static_cast<std::uint64_t>(i)));
  };
  results[2 * i] = permute_bytes(group, word(1), word(2), word(3) & 0x7777U);
  results[2 * i + 1] = choose_bits(group, word(4), word(1), word(2));
}

__global__ void join_words_on_device(std::uint32_t* results) {
  for (int i = static_cast<int>(threadIdx.x); i < joined_words; i += static_cast<int>(blockDim.x)) {
    join_words(cuda_warp{}, i, results);
  }
}

}  // namespace

TEST_CASE("lanes of a GPU join bytes and bits of two words as one thread does", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_values<std::uint32_t> const results(2 * joined_words);
  join_words_on_device<<<1, 128>>>(results.data());
  std::vector<std::uint32_t> const found = results.download();
  std::vector<std::uint32_t> expected(2 * joined_words);
  for (int i = 0; i < joined_words; ++i) {
    join_words(serial_group<32>{}, i, expected.data());
  }
  CHECK(found == expected);
}
