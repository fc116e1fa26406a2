// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <vector>

#include <tessera/tile/cuda/chosen_registers.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Each warp writes the eighth of its lanes' values that it is told, over and over.
template <int Registers>
__global__ void choose_eighths(float const* values, int const* eighths, int count, float* chosen) {
  float own[Registers];
#pragma unroll
  for (int i = 0; i < Registers; ++i) {
    own[i] = values[threadIdx.x * Registers + i];
  }
#pragma unroll 1
  for (int k = 0; k < count; ++k) {
    float some[8];
    choose_registers(some, own, eighths[threadIdx.x / 32 * static_cast<unsigned>(count) + k]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      chosen[(k * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 8 + i] = some[i];
    }
  }
}

template <int Registers>
void check_choices() {
  constexpr int lanes = 64;
  constexpr int count = 3 * Registers / 8;
  std::vector<float> values(lanes * Registers);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
  std::vector<int> eighths(2 * count);
  for (std::size_t i = 0; i < eighths.size(); ++i) {
    eighths[i] = static_cast<int>(i * 7 + i / count) % (Registers / 8);
  }
  device_values<float> const from(values);
  device_values<int> const which(eighths);
  device_values<float> const to(static_cast<std::size_t>(count) * lanes * 8);
  choose_eighths<Registers><<<1, lanes>>>(from.data(), which.data(), count, to.data());
  auto const found = to.download();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::size_t const lane = i / 8 % lanes;
    auto const eighth = static_cast<std::size_t>(eighths[lane / 32 * count + i / 8 / lanes]);
    wrong += found[i] == values[lane * Registers + eighth * 8 + i % 8] ? 0U : 1U;
  }
  CAPTURE(Registers);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("eight registers of many are chosen by a number", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_choices<8>();
  check_choices<16>();
  check_choices<24>();
  check_choices<96>();
  check_choices<128>();
}
