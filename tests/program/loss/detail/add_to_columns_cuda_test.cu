// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/program/loss/detail/add_to_columns.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

/// Each lane's sums, which are its number, get the bias of their columns.
template <int Registers>
__global__ void add_bias(float const* bias, float* to) {
  float sums[Registers];
  int const lane = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < Registers; ++i) {
    sums[i] = static_cast<float>(1000 * lane);
  }
  std::int32_t const own = 2 * (lane % 4);
  add_to_columns(sums, [&](std::int32_t further) { return bias[own + further]; });
#pragma unroll
  for (int i = 0; i < Registers; ++i) {
    to[Registers * lane + i] = sums[i];
  }
}

/// A lane has, of rows g and g + 8, columns 2t and 2t + 1 of each eight columns: tile/cuda/sm_90/warpgroup_mma.cuh.
template <int Registers>
int wrong_columns() {
  std::vector<float> bias(2 * Registers);
  for (std::size_t column = 0; column < bias.size(); ++column) {
    bias[column] = static_cast<float>(column + 1);
  }
  device_values<float> const from(bias);
  device_values<float> const to(32 * Registers);
  add_bias<Registers><<<1, 32>>>(from.data(), to.data());
  auto const found = to.download();
  int wrong = 0;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < Registers; ++i) {
      int const column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
      float const expected = static_cast<float>(1000 * lane) + bias[static_cast<std::size_t>(column)];
      wrong += found[static_cast<std::size_t>(Registers * lane + i)] == expected ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("a number is added to each column of a warp's sums, in both of its rows", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_columns<4>() == 0);
  CHECK(wrong_columns<32>() == 0);
  CHECK(wrong_columns<36>() == 0);
  CHECK(wrong_columns<96>() == 0);
}
