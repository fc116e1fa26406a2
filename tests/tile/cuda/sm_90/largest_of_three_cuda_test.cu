// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/sm_90/largest_of_three.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

__global__ void find_largest_of_three(std::int32_t const* threes, int count, std::int32_t* largest,
                                      std::int32_t* smallest) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    largest[i] = largest_of_three(threes[3 * i], threes[3 * i + 1], threes[3 * i + 2]);
    smallest[i] = smallest_of_three(threes[3 * i], threes[3 * i + 1], threes[3 * i + 2]);
  }
}

}  // namespace

TEST_CASE("the largest and the smallest of three integers are found with their signs", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<std::int32_t> const ends{std::numeric_limits<std::int32_t>::min(), -1, 0, 1,
                                       std::numeric_limits<std::int32_t>::max()};
  std::vector<std::int32_t> threes;
  for (std::int32_t const a : ends) {
    for (std::int32_t const b : ends) {
      for (std::int32_t const c : ends) {
        threes.insert(threes.end(), {a, b, c});
      }
    }
  }
  for (std::uint64_t i = 0; i < 3000; ++i) {
    threes.push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(testing::hash(7, i))));
  }
  device_values<std::int32_t> const from(threes);
  device_values<std::int32_t> const largest(threes.size() / 3);
  device_values<std::int32_t> const smallest(threes.size() / 3);
  find_largest_of_three<<<1, 128>>>(from.data(), static_cast<int>(threes.size() / 3), largest.data(), smallest.data());
  auto const most = largest.download();
  auto const least = smallest.download();
  int wrong = 0;
  for (std::size_t i = 0; i < most.size(); ++i) {
    wrong += most[i] == std::max({threes[3 * i], threes[3 * i + 1], threes[3 * i + 2]}) ? 0 : 1;
    wrong += least[i] == std::min({threes[3 * i], threes[3 * i + 1], threes[3 * i + 2]}) ? 0 : 1;
  }
  CHECK(wrong == 0);
}
