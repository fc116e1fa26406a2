// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/look_back.cuh>

#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

/// Sums of tiles by warps that take them in order and finish them in any: some dawdle.
__global__ void sum_tiles(std::uint64_t const* sums, std::int64_t tiles, std::uint64_t* words, unsigned long long* next,
                          std::uint64_t* before) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
  while (true) {
    std::int64_t tile = 0;
    if (lane == 0) {
      tile = static_cast<std::int64_t>(atomicAdd(next, 1ull));
    }
    tile = __shfl_sync(0xffffffffu, tile, 0);
    if (tile >= tiles) {
      return;
    }
    __nanosleep(static_cast<unsigned>(testing::hash(1, static_cast<std::uint64_t>(tile)) % 2000));
    std::uint64_t const found = look_back(words, tile, sums[tile], lane);
    before[tile * 32 + lane] = found;
  }
}

/// How many of the lanes got another sum than that of all tiles before theirs.
std::int64_t wrong_sums(std::int64_t tiles, std::uint64_t largest, int blocks) {
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(tiles));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = testing::hash(2, i) % (largest + 1);
  }
  device_values<std::uint64_t> const device_sums(sums);
  device_values<std::uint64_t> const words(sums.size());
  device_values<unsigned long long> const next(1);
  device_values<std::uint64_t> const before(32 * sums.size());
  sum_tiles<<<static_cast<unsigned>(blocks), 64>>>(device_sums.data(), tiles, words.data(), next.data(), before.data());
  std::vector<std::uint64_t> const found = before.download();
  std::vector<std::uint64_t> const published = words.download();
  std::int64_t wrong = 0;
  std::uint64_t expected = 0;
  for (std::size_t tile = 0; tile < sums.size(); ++tile) {
    for (std::size_t lane = 0; lane < 32; ++lane) {
      wrong += found[32 * tile + lane] == expected ? 0 : 1;
    }
    expected += sums[tile];
    wrong += published[tile] == (look_back_word::sum_up_to_here | expected) ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("every tile finds the sum of all tiles before it, in whatever order they finish", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t tiles : {1, 2, 31, 32, 33, 34, 1000, 20'000}) {
    INFO(tiles << " tiles");
    CHECK(wrong_sums(tiles, 5000, 200) == 0);
    CHECK(wrong_sums(tiles, 5000, 1) == 0);
  }
}

TEST_CASE("sums beyond 2^32 and sums of zeros are found", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_sums(5000, std::uint64_t{1} << 48, 100) == 0);
  CHECK(wrong_sums(5000, 0, 100) == 0);
}
