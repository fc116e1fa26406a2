// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/sm_90/half_words.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

__global__ void compute_on_halves(std::uint32_t const* threes, int count, std::uint32_t* limited,
                                  std::uint32_t* largest) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    limited[i] = add_up_to_halves(threes[3 * i], threes[3 * i + 1], threes[3 * i + 2]);
    largest[i] = largest_halves(threes[3 * i], threes[3 * i + 1], threes[3 * i + 2]);
  }
}

/// What a function of unsigned integers of 16 bits gives for both halves of three words.
template <class Function>
std::uint32_t of_halves(std::uint32_t const* words, Function function) {
  std::uint32_t found = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    auto const half = [&](int i) { return static_cast<std::uint16_t>(words[i] >> shift); };
    found |= std::uint32_t{static_cast<std::uint16_t>(function(half(0), half(1), half(2)))} << shift;
  }
  return found;
}

}  // namespace

TEST_CASE("halves of words are added modulo 2^16, limited and compared without a sign", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<std::uint32_t> const ends{0, 1, 0x7fff, 0x8000, 0xffff, 0x10000, 0xffff0000U, 0xffffffffU};
  std::vector<std::uint32_t> threes;
  for (std::uint32_t const a : ends) {
    for (std::uint32_t const b : ends) {
      for (std::uint32_t const c : ends) {
        threes.insert(threes.end(), {a, b, c});
      }
    }
  }
  for (std::uint64_t i = 0; i < 3000; ++i) {
    threes.push_back(static_cast<std::uint32_t>(testing::hash(7, i)));
  }
  device_values<std::uint32_t> const from(threes);
  device_values<std::uint32_t> const limited(threes.size() / 3);
  device_values<std::uint32_t> const largest(threes.size() / 3);
  compute_on_halves<<<1, 128>>>(from.data(), static_cast<int>(threes.size() / 3), limited.data(), largest.data());
  auto const least = limited.download();
  auto const most = largest.download();
  int wrong = 0;
  for (std::size_t i = 0; i < most.size(); ++i) {
    std::uint32_t const* const three = threes.data() + 3 * i;
    wrong +=
        least[i] == of_halves(three, [](std::uint16_t a, std::uint16_t b,
                                        std::uint16_t c) { return std::min(static_cast<std::uint16_t>(a + b), c); })
            ? 0
            : 1;
    wrong += most[i] == of_halves(three,
                                  [](std::uint16_t a, std::uint16_t b, std::uint16_t c) {
                                    return std::max({a, b, c});
                                  })
                 ? 0
                 : 1;
  }
  CHECK(wrong == 0);
}
