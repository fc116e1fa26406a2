// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/async_copy.cuh>

#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

constexpr int words = 1024;

/// Through shared memory and back, reversed, so that each thread reads what another copied.
__global__ void copy_reversed(std::uint32_t const* from, std::uint32_t* to, bool prefetch) {
  __shared__ alignas(16) std::uint32_t staged[words];
  if (prefetch && threadIdx.x == 0) {
    prefetch_to_l2(from + 1, (words - 1) * 4);
  }
  for (int i = static_cast<int>(threadIdx.x) * 4; i < words; i += static_cast<int>(blockDim.x) * 4) {
    async_copy_16(staged + i, from + i);
  }
  async_copy_wait_all();
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < words; i += static_cast<int>(blockDim.x)) {
    to[i] = staged[words - 1 - i];
  }
}

}  // namespace

TEST_CASE("copies beside the threads have arrived after the wait, prefetched to L2 or not", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<std::uint32_t> values(words);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = testing::uniform_bits{}.value(1, i);
  }
  device_values<std::uint32_t> const from(values);
  for (bool prefetch : {false, true}) {
    device_values<std::uint32_t> const to(words);
    copy_reversed<<<1, 96>>>(from.data(), to.data(), prefetch);
    CHECK(to.download() == std::vector<std::uint32_t>(values.rbegin(), values.rend()));
  }
}
