// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/shared_access.cuh>

#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

constexpr int words = 1024;

/// Each thread reads words of its own by address: one, two, and a half; and writes a half.
__global__ void access_shared(std::uint32_t const* from, std::uint32_t* to) {
  __shared__ alignas(8) std::uint32_t table[words];
  __shared__ std::uint16_t halves[2 * words];
  int const thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < words; i += static_cast<int>(blockDim.x)) {
    table[i] = from[i];
  }
  __syncthreads();
  std::uint32_t const begin = shared_address(table);
  for (int i = thread; i < words; i += static_cast<int>(blockDim.x)) {
    std::uint32_t const index = static_cast<std::uint32_t>(i) * 7 + 0xabc00000u;  // only the low ten bits count
    to[i] = load_shared_u32(table_address<10>(begin, index));
    uint2 const two = load_shared_u32x2(begin + 8 * (static_cast<std::uint32_t>(i) / 2));
    to[words + i] = two.x * 3 + two.y;
    to[2 * words + i] = load_shared_u16(begin + 4 * static_cast<std::uint32_t>(i) + 2);
    store_shared_u16(shared_address(halves) + 2 * static_cast<std::uint32_t>(2 * words - 1 - i), from[i]);
  }
  __syncthreads();
  for (int i = thread; i < words; i += static_cast<int>(blockDim.x)) {
    to[3 * words + i] = halves[2 * words - 1 - i];
  }
}

}  // namespace

TEST_CASE("shared memory is read and written by address", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<std::uint32_t> values(words);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = testing::uniform_bits{}.value(4, i);
  }
  device_values<std::uint32_t> const from(values);
  device_values<std::uint32_t> const to(4 * words);
  access_shared<<<1, 128>>>(from.data(), to.data());
  std::vector<std::uint32_t> const found = to.download();
  int wrong = 0;
  for (std::size_t i = 0; i < words; ++i) {
    wrong += found[i] == values[i * 7 % words] ? 0 : 1;
    wrong += found[words + i] == values[i / 2 * 2] * 3 + values[i / 2 * 2 + 1] ? 0 : 1;
    wrong += found[2 * words + i] == values[i] >> 16 ? 0 : 1;
    wrong += found[3 * words + i] == (values[i] & 0xffffu) ? 0 : 1;
  }
  CHECK(wrong == 0);
}
