// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>

#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

constexpr int lanes = 32;
constexpr int warps = 3;
constexpr int blocks = 2;
constexpr int functions = 15;

__host__ __device__ std::uint32_t value_of(std::uint32_t block, std::uint32_t thread) {
  return static_cast<std::uint32_t>(testing::hash(block, thread));
}

/// Each thread writes the result of all functions.
__global__ void apply_all(std::uint32_t* results) {
  __shared__ std::uint32_t shared[lanes * warps];
  std::uint32_t const thread = thread_index();
  std::uint32_t const value = value_of(block_index(), thread);
  shared[thread] = value;
  sync_warp();
  std::uint32_t* const result = results + functions * (block_index() * lanes * warps + thread);
  result[0] = shared[thread ^ 5U];
  result[1] = shuffle(value, static_cast<int>(thread * 7 % lanes));
  result[2] = shuffle_xor(value, 17);
  result[3] = shuffle_up(value, 3);
  result[4] = uniform(value);
  result[5] = any_of_warp(value % 64 == 0) ? 1 : 0;
  result[6] = all_of_warp(value % 64 != 0) ? 1 : 0;
  result[7] = ballot_of_warp(value % 3 == 0);
  result[8] = sum_of_warp(value);
  result[9] = largest_of_warp(value);
  result[10] = static_cast<std::uint32_t>(largest_of_warp(static_cast<std::int32_t>(value)));
  result[11] = bits_of_warp(value & 0x01010101U & (1U << thread % lanes));
  result[12] = thread_index_here();
  result[13] = blocks_in_grid();
  result[14] =
      static_cast<std::uint32_t>(shuffle_xor(static_cast<double>(value), 1) == value_of(block_index(), thread ^ 1U));
}

/// What `thread` must find, of its warp's values.
std::vector<std::uint32_t> expected_of(std::uint32_t block, std::uint32_t thread) {
  std::uint32_t const lane = thread % lanes;
  std::uint32_t const first = thread - lane;
  std::uint32_t sum = 0;
  std::uint32_t ballot = 0;
  std::uint32_t largest = 0;
  std::int32_t largest_signed = INT32_MIN;
  std::uint32_t bits = 0;
  bool any = false;
  for (std::uint32_t i = 0; i < lanes; ++i) {
    std::uint32_t const value = value_of(block, first + i);
    sum += value;
    ballot |= (value % 3 == 0 ? 1U : 0U) << i;
    largest = std::max(largest, value);
    largest_signed = std::max(largest_signed, static_cast<std::int32_t>(value));
    bits |= value & 0x01010101U & (1U << i);
    any = any || value % 64 == 0;
  }
  return {value_of(block, thread ^ 5U),
          value_of(block, first + thread * 7 % lanes),
          value_of(block, thread ^ 17U),
          value_of(block, lane < 3 ? thread : thread - 3),
          value_of(block, first),
          any ? 1U : 0U,
          any ? 0U : 1U,
          ballot,
          sum,
          largest,
          static_cast<std::uint32_t>(largest_signed),
          bits,
          thread,
          blocks,
          1U};
}

}  // namespace

TEST_CASE("lanes of a warp exchange their values, and no others", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_values<std::uint32_t> const results(functions * lanes * warps * blocks);
  apply_all<<<blocks, lanes * warps>>>(results.data());
  auto const found = results.download();
  for (std::uint32_t block = 0; block < blocks; ++block) {
    for (std::uint32_t thread = 0; thread < lanes * warps; ++thread) {
      CAPTURE(block, thread);
      auto const* const own = found.data() + functions * (block * lanes * warps + thread);
      CHECK(std::vector<std::uint32_t>(own, own + functions) == expected_of(block, thread));
    }
  }
}
