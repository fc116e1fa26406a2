// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/bytes.cuh>

#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

constexpr int functions = 7;
constexpr int count = 4096;

struct operands {
  std::uint32_t a, b, c;
};

__host__ __device__ operands operands_at(int i) {
  std::uint64_t const first = testing::hash(1, static_cast<std::uint64_t>(i));
  std::uint64_t const second = testing::hash(2, static_cast<std::uint64_t>(i));
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(first >> 32),
          static_cast<std::uint32_t>(second)};
}

__global__ void apply_all(std::uint32_t* results) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    operands const given = operands_at(i);
    std::uint32_t* const result = results + functions * i;
    result[0] = pick_bytes(given.a, given.b, given.c & 0x7777u);
    result[1] = select_bits(given.a, given.b, given.c);
    result[2] = multiply_add(given.a, given.b, given.c);
    result[3] = multiply_add(given.a, 2, given.c);
    result[4] = multiply_add(given.a, ~1u, given.c);
    result[5] = lanes_below();
    result[6] = mask_and_flip(given.a, given.b, given.c);
  }
}

std::uint32_t picked(operands given, std::uint32_t selector) {
  std::uint64_t const eight = given.a | (std::uint64_t{given.b} << 32);
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    std::uint32_t const which = (selector >> (4 * i)) & 7u;
    result |= static_cast<std::uint32_t>((eight >> (8 * which)) & 0xffu) << (8 * i);
  }
  return result;
}

/// Moves 4, 8, 16 and again 16 bytes at a time.
__global__ void move_once(std::uint32_t const* from, std::uint32_t* to) {
  int const thread = static_cast<int>(threadIdx.x);
  store_once(to + thread, load_once(from + thread));
  store_once(reinterpret_cast<uint2*>(to + 32) + thread, load_once(reinterpret_cast<uint2 const*>(from + 32) + thread));
  store_once(reinterpret_cast<uint4*>(to + 96) + thread, load_once(reinterpret_cast<uint4 const*>(from + 96) + thread));
  uint4 const four = begin_load_from_l2(reinterpret_cast<uint4 const*>(from + 224) + thread);
  store_here(reinterpret_cast<uint2*>(to + 224) + 2 * thread, {four.x, four.y});
  store_here(reinterpret_cast<uint2*>(to + 224) + 2 * thread + 1, {four.z, four.w});
}

}  // namespace

TEST_CASE("bytes and bits are picked, and sums of products made, as plain arithmetic does", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_values<std::uint32_t> const results(functions * count);
  apply_all<<<1, 128>>>(results.data());
  std::vector<std::uint32_t> const found = results.download();
  int wrong[functions] = {};
  for (int i = 0; i < count; ++i) {
    operands const given = operands_at(i);
    std::uint32_t const expected[functions] = {picked(given, given.c & 0x7777u),
                                               (given.b & given.a) | (given.c & ~given.a),
                                               given.a * given.b + given.c,
                                               given.a * 2 + given.c,
                                               given.c - 2 * given.a,
                                               (1u << (i % 32)) - 1,
                                               (given.a & given.b) ^ given.c};
    for (int f = 0; f < functions; ++f) {
      wrong[f] += found[static_cast<std::size_t>(functions * i + f)] == expected[f] ? 0 : 1;
    }
  }
  for (int f = 0; f < functions; ++f) {
    INFO("function " << f);
    CHECK(wrong[f] == 0);
  }
}

TEST_CASE("what is read once and written once arrives whole", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<std::uint32_t> values(352);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = testing::uniform_bits{}.value(3, i);
  }
  device_values<std::uint32_t> const from(values);
  device_values<std::uint32_t> const to(values.size());
  move_once<<<1, 32>>>(from.data(), to.data());
  CHECK(to.download() == values);
}
