// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/core/int4.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/mma.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

/// A warp adds a * b to the sums, twice.
template <class T>
struct one_multiplication {
  static constexpr int lanes = 32;
  struct scratch_type {};

  T const* a;          ///< 16 rows of 32 bytes
  T const* b;          ///< 8 columns of 32 bytes
  std::int32_t* sums;  ///< 16 x 8

  template <class Group>
  __device__ void operator()(Group const& group, std::int64_t, scratch_type&) const {
    int const lane = group.lane;
    std::uint32_t const of_a[4] = {word(a, lane / 4, lane % 4), word(a, lane / 4 + 8, lane % 4),
                                   word(a, lane / 4, lane % 4 + 4), word(a, lane / 4 + 8, lane % 4 + 4)};
    std::uint32_t const of_b[2] = {word(b, lane / 4, lane % 4), word(b, lane / 4, lane % 4 + 4)};
    std::int32_t four[4];
    for (int i = 0; i < 4; ++i) {
      four[i] = sums[index_of(lane, i)];
    }
    warp_mma<T>::multiply(four, of_a, of_b);
    warp_mma<T>::multiply(four, of_a, of_b);
    for (int i = 0; i < 4; ++i) {
      sums[index_of(lane, i)] = four[i];
    }
  }
  __device__ static int index_of(int lane, int i) { return (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2; }
  __device__ static std::uint32_t word(T const* from, int row, int column) {
    std::uint32_t bits;
    memcpy(&bits, from + row * 32 + column * 4, sizeof bits);
    return bits;
  }
};

int product_of(std::int8_t a, std::int8_t b) {
  return a * b;
}
int product_of(int4x2 a, int4x2 b) {
  return low(a) * low(b) + high(a) * high(b);
}

/// Operands of any bits.
template <class T>
std::vector<T> random_operands(std::size_t count, std::uint64_t seed) {
  std::vector<T> made(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto const bits = static_cast<std::uint8_t>(testing::hash(seed, i));
    std::memcpy(&made[i], &bits, 1);
  }
  return made;
}

template <class T>
void check_products() {
  static_assert(sizeof(T) == 1 && warp_mma<T>::depth == 32);
  auto const a = random_operands<T>(16 * 32, 1);
  auto const b = random_operands<T>(8 * 32, 2);
  std::vector<std::int32_t> sums(16 * 8);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = static_cast<std::int32_t>(testing::hash(3, i) % 2001) - 1000;
  }
  std::vector<std::int32_t> expected = sums;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (std::size_t k = 0; k < 32; ++k) {
      expected[i] += 2 * product_of(a[i / 8 * 32 + k], b[i % 8 * 32 + k]);
    }
  }
  device_values<T> const on_device_a(a);
  device_values<T> const on_device_b(b);
  device_values<std::int32_t> const found(sums);
  tessera::cuda const exec;
  exec.run(one_multiplication<T>{on_device_a.data(), on_device_b.data(), found.data()}, 1);
  exec.wait();
  CHECK(found.download() == expected);
}

}  // namespace

TEST_CASE("an instruction multiplies integers of 8 bits, and two of 4 bits in a byte, exactly", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_products<std::int8_t>();
  check_products<int4x2>();
}
