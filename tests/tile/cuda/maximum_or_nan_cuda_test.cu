// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/maximum_or_nan.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

__global__ void find_extremes(float const* a, float const* b, int count, float* larger, float* smaller) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    larger[i] = maximum_or_nan(a[i], b[i]);
    smaller[i] = minimum_or_nan(a[i], b[i]);
  }
}

template <class T>
__global__ void find_larger_pairs(std::uint32_t const* a, std::uint32_t const* b, int count, std::uint32_t* larger) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    larger[i] = larger_pair_or_nan<T>(a[i], b[i]);
  }
}

/// Whether `found` is the larger of two numbers, or NaN if one is; of zeros with two signs either will do.
bool is_larger_or_nan(double found, double a, double b) {
  return std::isnan(a) || std::isnan(b) ? std::isnan(found) : found == std::fmax(a, b);
}

template <class T>
int wrong_larger_pairs() {
  std::vector<std::uint32_t> a;
  std::vector<std::uint32_t> b;
  std::vector<std::uint32_t> const specials{0x0000, 0x8000, 0x0001, 0x8001, 0x7c00, 0xfc00, 0x7c01,
                                            0x7f80, 0xff80, 0x7fc0, 0xffff, 0x3c00, 0x3f80, 0xbf80};
  for (std::uint32_t const low : specials) {
    for (std::uint32_t const high : specials) {
      a.push_back(low | high << 16);
      b.push_back(high | low << 16);
    }
  }
  for (std::uint64_t i = 0; i < 20000; ++i) {
    a.push_back(static_cast<std::uint32_t>(testing::hash(1, i)));
    b.push_back(static_cast<std::uint32_t>(testing::hash(2, i)));
  }
  device_values<std::uint32_t> const first(a);
  device_values<std::uint32_t> const second(b);
  device_values<std::uint32_t> const larger(a.size());
  find_larger_pairs<T><<<1, 256>>>(first.data(), second.data(), static_cast<int>(a.size()), larger.data());
  auto const found = larger.download();
  int wrong = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (int shift = 0; shift < 32; shift += 16) {
      auto const number = [&](std::uint32_t word) {
        return static_cast<double>(load(T{static_cast<std::uint16_t>(word >> shift)}));
      };
      wrong += is_larger_or_nan(number(found[i]), number(a[i]), number(b[i])) ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("the larger and the smaller of two floats are found, or NaN where one is", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  constexpr float infinite = std::numeric_limits<float>::infinity();
  std::vector<float> const specials{0.0F,  -0.0F,    1.0F,      -1.0F,         0x1p-149F,     -0x1p-149F,
                                    3e38F, infinite, -infinite, std::nanf(""), -std::nanf("")};
  std::vector<float> a;
  std::vector<float> b;
  for (float const first : specials) {
    for (float const second : specials) {
      a.push_back(first);
      b.push_back(second);
    }
  }
  for (std::uint64_t i = 0; i < 20000; ++i) {
    a.push_back(bit_cast<float>(static_cast<std::uint32_t>(testing::hash(1, i))));
    b.push_back(bit_cast<float>(static_cast<std::uint32_t>(testing::hash(2, i))));
  }
  device_values<float> const first(a);
  device_values<float> const second(b);
  device_values<float> const larger(a.size());
  device_values<float> const smaller(a.size());
  find_extremes<<<1, 256>>>(first.data(), second.data(), static_cast<int>(a.size()), larger.data(), smaller.data());
  auto const maxima = larger.download();
  auto const minima = smaller.download();
  int wrong = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto const x = static_cast<double>(a[i]);
    auto const y = static_cast<double>(b[i]);
    bool const right = is_larger_or_nan(static_cast<double>(maxima[i]), x, y) &&
                       is_larger_or_nan(-static_cast<double>(minima[i]), -x, -y);
    wrong += right ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("the larger values of pairs are found half by half, or NaN where one is", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_larger_pairs<bfloat16>() == 0);
  CHECK(wrong_larger_pairs<float16>() == 0);
}
