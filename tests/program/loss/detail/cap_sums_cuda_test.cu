// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/program/loss/detail/cap_sums.cuh>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

constexpr int registers = 8;

__global__ void cap_all(float const* from, float cap, float* to) {
  float sums[registers];
  for (int i = 0; i < registers; ++i) {
    sums[i] = from[threadIdx.x * registers + i];
  }
  cap_sums(sums, cap);
  for (int i = 0; i < registers; ++i) {
    to[threadIdx.x * registers + i] = sums[i];
  }
}

/// What cap_sums() makes of values, of which there are a whole number of eights.
std::vector<float> capped(std::vector<float> const& values, float cap) {
  device_values<float> const from(values);
  device_values<float> const to(values.size());
  cap_all<<<1, static_cast<unsigned>(values.size() / registers)>>>(from.data(), cap, to.data());
  return to.download();
}

}  // namespace

TEST_CASE("capped sums are within 5e-7 of the cap", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    float const size = std::ldexp(1.0F, static_cast<int>(i % 40) - 30);  // from 2^-30 to 2^9
    values.push_back(size * testing::gauss{}.value(11, i));
    values.push_back(30.0F * testing::gauss{}.value(12, i));
  }
  for (float const cap : {0.01F, 1.0F, 30.0F, 50.0F}) {
    CAPTURE(cap);
    std::vector<float> found;
    for (std::size_t first = 0; first < values.size(); first += 2000) {
      auto const begin = values.begin() + static_cast<std::ptrdiff_t>(first);
      std::vector<float> const some = capped({begin, begin + 2000}, cap);
      found.insert(found.end(), some.begin(), some.end());
    }
    double farthest = 0;
    auto const bound = static_cast<double>(cap);
    for (std::size_t i = 0; i < values.size(); ++i) {
      double const exact = bound * std::tanh(static_cast<double>(values[i]) / bound);
      farthest = std::fmax(farthest, std::fabs(static_cast<double>(found[i]) - exact));
    }
    CHECK(farthest > 0.0);
    CHECK(farthest <= 5e-7 * bound);
  }
}

TEST_CASE("a cap of 0 leaves sums, and infinite sums are capped", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  float const infinite = std::numeric_limits<float>::infinity();
  std::vector<float> const values{0.0F, 1.5F, -3e38F, infinite, -infinite, 7.0F, 1e-40F, std::nanf("")};
  std::vector<float> const same = capped(values, 0.0F);
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    CAPTURE(i);
    CHECK(same[i] == values[i]);
  }
  CHECK(std::isnan(same.back()));
  std::vector<float> const found = capped(values, 5.0F);
  CHECK(found[2] == -5.0F);
  CHECK(found[3] == 5.0F);
  CHECK(found[4] == -5.0F);
  CHECK(std::isnan(found.back()));
}
