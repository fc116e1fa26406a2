// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/tile/cuda/thread_index.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

__global__ void note_indices(std::uint32_t* to) {
  unsigned const index = (blockIdx.x * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  to[index] = 1 + thread_index_here();
}

}  // namespace

TEST_CASE("a thread reads its index in the first dimension of its block", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_values<std::uint32_t> const to(3 * 2 * 96);
  note_indices<<<3, dim3(96, 2)>>>(to.data());
  auto const found = to.download();
  int wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    wrong += found[i] == 1 + i % 96 ? 0 : 1;
  }
  CHECK(wrong == 0);
}
