// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/shared_access.cuh>

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
    prefetch ? async_copy_16_of_line(staged + i, from + i) : async_copy_16(staged + i, from + i);
  }
  async_copy_wait_all();
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < words; i += static_cast<int>(blockDim.x)) {
    to[i] = staged[words - 1 - i];
  }
}

/// Each thread copies pieces of `Bytes` in groups of one, and takes each as soon as all but the last two are there.
template <int Bytes>
__global__ void copy_in_groups(std::uint32_t const* from, std::uint32_t* to) {
  constexpr int own_words = Bytes / 4;
  constexpr int pieces = 8;
  __shared__ alignas(16) std::uint32_t staged[pieces][64 * own_words];
  int const own = static_cast<int>(threadIdx.x) * own_words;
  auto const begin = [&](int piece) {
    if (Bytes == 4 && piece < pieces / 2) {
      async_copy_4(shared_address(&staged[piece][own]), from + piece * 64 * own_words + own);
    } else if (piece < pieces) {
      async_copy<Bytes>(&staged[piece][own], from + piece * 64 * own_words + own);
    }
    async_copy_commit();  // an empty group, too
  };
  begin(0);
  begin(1);
  for (int piece = 0; piece < pieces; ++piece) {
    begin(piece + 2);
    async_copy_wait<2>();
    for (int i = 0; i < own_words; ++i) {
      to[piece * 64 * own_words + own + i] = staged[piece][own + i] + 1;
    }
  }
}

/// A warp copies `Bytes` and what is there behind them stays.
template <int Bytes>
__global__ void copy_by_warp(std::uint32_t const* from, std::uint32_t* to) {
  __shared__ alignas(16) std::uint32_t staged[words];
  for (int i = static_cast<int>(threadIdx.x); i < words; i += 32) {
    staged[i] = 7;
  }
  __syncwarp();
  async_copy_by_warp<Bytes>(staged, from, static_cast<int>(threadIdx.x));
  async_copy_wait_all();
  __syncwarp();
  for (int i = static_cast<int>(threadIdx.x); i < words; i += 32) {
    to[i] = staged[i];
  }
}

template <int Bytes>
void check_copies_of_a_warp() {
  std::vector<std::uint32_t> values(words);
  std::vector<std::uint32_t> expected(words, 7);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = testing::uniform_bits{}.value(3, i);
    expected[i] = 4 * i < Bytes ? values[i] : 7;
  }
  device_values<std::uint32_t> const from(values);
  device_values<std::uint32_t> const to(words);
  copy_by_warp<Bytes><<<1, 32>>>(from.data(), to.data());
  CAPTURE(Bytes);
  CHECK(to.download() == expected);
}

template <int Bytes>
void check_groups() {
  std::vector<std::uint32_t> values(8 * 64 * Bytes / 4);
  std::vector<std::uint32_t> expected;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = testing::uniform_bits{}.value(2, i);
    expected.push_back(values[i] + 1);
  }
  device_values<std::uint32_t> const from(values);
  device_values<std::uint32_t> const to(values.size());
  copy_in_groups<Bytes><<<1, 64>>>(from.data(), to.data());
  CHECK(to.download() == expected);
}

}  // namespace

TEST_CASE("copies of 4, 8 and 16 bytes are awaited by groups", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_groups<4>();
  check_groups<8>();
  check_groups<16>();
}

TEST_CASE("a warp copies whole 16 bytes together, and no more", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_copies_of_a_warp<16>();
  check_copies_of_a_warp<512>();
  check_copies_of_a_warp<1520>();
  check_copies_of_a_warp<2 * 512 + 16>();
}

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
