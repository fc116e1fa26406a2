// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/exponential.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

__global__ void apply_fast_functions(float const* from, int count, float* powers, float* logarithms,
                                     float* reciprocals) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    powers[i] = fast_exp2(from[i]);
    logarithms[i] = fast_log2(from[i]);
    reciprocals[i] = fast_reciprocal(from[i]);
  }
}

struct fast_results {
  std::vector<float> powers;
  std::vector<float> logarithms;
  std::vector<float> reciprocals;

  explicit fast_results(std::vector<float> const& values) {
    device_values<float> const from(values);
    device_values<float> const to_powers(values.size());
    device_values<float> const to_logarithms(values.size());
    device_values<float> const to_reciprocals(values.size());
    apply_fast_functions<<<1, 256>>>(from.data(), static_cast<int>(values.size()), to_powers.data(),
                                     to_logarithms.data(), to_reciprocals.data());
    powers = to_powers.download();
    logarithms = to_logarithms.download();
    reciprocals = to_reciprocals.download();
  }
};

/// How far a float is from the exact value, in units in the last place of the exact value.
double units_apart(float found, double exact) {
  int const exponent = std::ilogb(exact);
  return std::fabs(static_cast<double>(found) - exact) / std::ldexp(1.0, exponent - 23);
}

}  // namespace

TEST_CASE("fast powers and logarithms and reciprocals are as near as their header says", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    values.push_back(30.0F * testing::gauss{}.value(5, i));  // powers are normal numbers: |value| < 126
    values.push_back(std::ldexp(1.0F + 1e-3F * testing::gauss{}.value(6, i), static_cast<int>(i % 200) - 100));
  }
  fast_results const found(values);
  double power = 0;
  double logarithm = 0;
  double logarithm_near_one = 0;
  double reciprocal = 0;
  int tried = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto const value = static_cast<double>(values[i]);
    reciprocal = std::fmax(reciprocal, units_apart(found.reciprocals[i], 1.0 / value));
    if (std::fabs(value) < 126.0) {
      power = std::fmax(power, units_apart(found.powers[i], std::exp2(value)));
      ++tried;
    }
    if (value >= 0.5 && value <= 2.0) {
      double const apart = std::fabs(static_cast<double>(found.logarithms[i]) - std::log2(value));
      logarithm_near_one = std::fmax(logarithm_near_one, apart);
    } else if (value > 0.0) {
      logarithm = std::fmax(logarithm, units_apart(found.logarithms[i], std::log2(value)));
    }
  }
  CHECK(tried > 20000);
  CHECK(power <= 2.0);
  CHECK(logarithm <= 2.01);
  CHECK(logarithm_near_one <= 0x1p-22);
  CHECK(reciprocal <= 2.0);
}

TEST_CASE("fast functions take infinities and NaN and zero", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  float const infinite = std::numeric_limits<float>::infinity();
  fast_results const found({0.0F, infinite, -infinite, std::nanf(""), -1.0F, -200.0F, 200.0F, 1.0F});
  CHECK(found.powers[0] == 1.0F);
  CHECK(found.powers[1] == infinite);
  CHECK(found.powers[2] == 0.0F);
  CHECK(std::isnan(found.powers[3]));
  CHECK(found.powers[5] == 0.0F);
  CHECK(found.powers[6] == infinite);
  CHECK(found.logarithms[0] == -infinite);
  CHECK(found.logarithms[1] == infinite);
  CHECK(std::isnan(found.logarithms[2]));
  CHECK(std::isnan(found.logarithms[3]));
  CHECK(std::isnan(found.logarithms[4]));
  CHECK(found.logarithms[7] == 0.0F);
  CHECK(found.reciprocals[0] == infinite);
  CHECK(found.reciprocals[1] == 0.0F);
  CHECK(found.reciprocals[2] == 0.0F);
  CHECK(std::isnan(found.reciprocals[3]));
  CHECK(found.reciprocals[4] == -1.0F);
}
