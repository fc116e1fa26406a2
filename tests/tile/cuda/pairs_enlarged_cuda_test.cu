// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/cuda/pairs.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

constexpr int factors = 256;

/// Every value of 16 bits times 1 + n / 256.
template <class T>
__global__ void enlarge_all(std::uint32_t const* fractions, std::uint32_t* products) {
  std::uint32_t const bits = blockIdx.x * blockDim.x + threadIdx.x;
  std::uint32_t const fraction = fractions[blockIdx.y];
  products[blockIdx.y * 65536U + bits] = enlarge_pair<T>(bits | ((bits ^ 0x8000U) << 16), fraction | (fraction << 16));
}
__global__ void enlarge_floats(std::uint32_t const* values, std::uint32_t const* fractions, std::uint32_t* products,
                               int count) {
  int const i = static_cast<int>(threadIdx.x);
  if (i < count) {
    products[i] = enlarge_pair<float>(values[i], fractions[i]);
  }
}

/// The number of finite products that are not what rounding the exact product gives.
template <class T>
std::int64_t count_wrong() {
  std::vector<std::uint32_t> fractions;
  for (int n = 0; n < factors; ++n) {
    fractions.push_back(to_bits(store<T>(static_cast<float>(n) / 256.0F)));
  }
  device_values<std::uint32_t> const there(fractions);
  device_values<std::uint32_t> const products(std::size_t{factors} * 65536);
  enlarge_all<T><<<dim3(256, factors), 256>>>(there.data(), products.data());
  tessera_test::cuda_ok(cudaGetLastError());
  auto const found = products.download();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    T const value = from_bits<T>(static_cast<std::uint16_t>(i % 65536));
    // A product of 16-bit values and a factor of nine bits is exact in fp32.
    T const expected = store<T>(static_cast<float>(load(value)) * (1.0F + static_cast<float>(i / 65536) / 256.0F));
    bool const is_number = is_finite(load(value));
    std::uint32_t const pair = to_bits(expected) | ((to_bits(expected) ^ 0x8000U) << 16);
    wrong += is_number && found[i] != pair ? 1 : 0;
  }
  return wrong;
}

}  // namespace

TEST_CASE("pairs are enlarged with one rounding, subnormal numbers included", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(count_wrong<bfloat16>() == 0);
  CHECK(count_wrong<float16>() == 0);
}

TEST_CASE("floats are enlarged with one rounding, subnormal numbers included", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<std::uint32_t> values;
  std::vector<std::uint32_t> fractions;
  std::vector<std::uint32_t> expected;
  for (float const value : {1.0F, -1.5F, 0.0F, -0.0F, 1e-40F, -3e-45F, 1.1754942e-38F, 3e38F, 0.1F}) {
    for (int const n : {0, 1, 77, 128, 255}) {
      double const exact = double{value} * (1.0 + n / 256.0);
      values.push_back(to_bits(value));
      fractions.push_back(to_bits(static_cast<float>(n) / 256.0F));
      expected.push_back(to_bits(static_cast<float>(exact)));
    }
  }
  device_values<std::uint32_t> const there(values);
  device_values<std::uint32_t> const by(fractions);
  device_values<std::uint32_t> const products(values.size());
  enlarge_floats<<<1, 64>>>(there.data(), by.data(), products.data(), static_cast<int>(values.size()));
  tessera_test::cuda_ok(cudaGetLastError());
  CHECK(products.download() == expected);
}
