// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What core/ says is the same on both sides, is.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/core/crc32c.hpp>
#include <tessera/core/math.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

namespace {

/// One value of every function, from three inputs.
struct results {
  std::uint32_t exact[16];  ///< the same bits on both sides
  float close[4];           ///< exp, exp2, log, log2
};

struct inputs {
  std::uint32_t a;
  std::uint32_t b;
  std::uint32_t c;
};

/// As bits, with all NaNs alike: their payload is each side's own.
__host__ __device__ std::uint32_t pattern(float value) {
  return tessera::is_nan(value) ? 0x7fffffffU : tessera::bit_cast<std::uint32_t>(value);
}

/// A NaN becomes quiet: hosts treat signalling ones differently.
__host__ __device__ float quiet(std::uint32_t bits) {
  auto const value = tessera::bit_cast<float>(bits);
  return tessera::is_nan(value) ? tessera::bit_cast<float>(bits | 0x00400000U) : value;
}

__host__ __device__ results evaluate(inputs const& given) {
  float const a = quiet(given.a);
  float const b = quiet(given.b);
  float const c = quiet(given.c);
  std::uint64_t const wide = (std::uint64_t{given.a} << 32) | given.b;
  std::uint8_t const bytes[4] = {static_cast<std::uint8_t>(given.a), static_cast<std::uint8_t>(given.b),
                                 static_cast<std::uint8_t>(given.c), static_cast<std::uint8_t>(given.a >> 8)};
  results got{};
  got.exact[0] = pattern(tessera::minimum(a, b));
  got.exact[1] = pattern(tessera::maximum(a, b));
  got.exact[2] = pattern(tessera::round_to_even(a));
  got.exact[3] = pattern(tessera::multiply_add(a, b, c));
  got.exact[4] = pattern(tessera::sqrt(a));
  got.exact[5] = pattern(tessera::absolute(b));
  got.exact[6] = static_cast<std::uint32_t>(tessera::popcount(given.a) + 100 * tessera::popcount(wide));
  got.exact[7] = static_cast<std::uint32_t>(tessera::count_leading_zeros(given.b) +
                                            100 * tessera::count_leading_zeros(wide >> (given.c & 63U)));
  got.exact[8] = static_cast<std::uint32_t>(tessera::count_trailing_zeros(given.c) +
                                            100 * tessera::count_trailing_zeros(wide << (given.c & 63U)));
  got.exact[9] = static_cast<std::uint32_t>(tessera::log2_floor(given.b | 1U));
  got.exact[10] = tessera::multiply_high(given.a, given.b);
  got.exact[11] = static_cast<std::uint32_t>(tessera::log2_ceil(given.a | 1U));
  got.exact[12] = tessera::crc32c(bytes, 4, given.c);
  got.exact[13] = tessera::crc32c_byte(given.a, bytes[1]);
  got.exact[14] = tessera::crc32c_combine(given.a, given.b, given.c & 0xffffU);
  got.exact[15] = tessera::is_finite(c) ? 1U : 0U;
  float const moderate = 80.0F * static_cast<float>(given.a >> 8) * 0x1p-23F - 80.0F;
  got.close[0] = tessera::exp(moderate);
  got.close[1] = tessera::exp2(moderate);
  got.close[2] = tessera::log(tessera::absolute(moderate) + 1.5F);
  got.close[3] = tessera::log2(tessera::absolute(moderate) + 1.5F);
  return got;
}

__global__ void evaluate_all(inputs const* given, results* got, int count) {
  int const which = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (which < count) {
    got[which] = evaluate(given[which]);
  }
}

std::vector<inputs> some_inputs() {
  // Pairs of zeros of different signs are left out: either may be the smaller one.
  std::uint32_t const special[] = {0x00000001U, 0x007fffffU, 0x00800000U, 0x3f000000U, 0x3fc00000U, 0xc0200000U,
                                   0x4b000001U, 0x7f7fffffU, 0x7f800000U, 0xff800000U, 0x7fc00001U, 0x00000000U};
  std::vector<inputs> given;
  for (std::uint32_t const a : special) {
    for (std::uint32_t const b : special) {
      given.push_back({a, b, a ^ (b >> 1)});
    }
  }
  std::mt19937 random(13);
  while (given.size() < 20000) {
    given.push_back({static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random()),
                     static_cast<std::uint32_t>(random())});
  }
  return given;
}

/// Within four units in the last place: two for each side.
bool near(float a, float b) {
  return std::fabs(a - b) <= 0x1p-21F * std::fabs(b);
}

}  // namespace

TEST_CASE("bits, checksums and float functions give the same on the device as on the host", "[cuda][math]") {
  TESSERA_NEEDS_CUDA();
  std::vector<inputs> const given = some_inputs();
  std::vector<results> got(given.size());
  inputs* device_given = nullptr;
  results* device_got = nullptr;
  tessera_test::cuda_ok(cudaMalloc(reinterpret_cast<void**>(&device_given), given.size() * sizeof(inputs)));
  tessera_test::cuda_ok(cudaMalloc(reinterpret_cast<void**>(&device_got), got.size() * sizeof(results)));
  tessera_test::cuda_ok(cudaMemcpy(device_given, given.data(), given.size() * sizeof(inputs), cudaMemcpyHostToDevice));
  evaluate_all<<<static_cast<unsigned>(given.size() / 128 + 1), 128>>>(device_given, device_got,
                                                                       static_cast<int>(given.size()));
  tessera_test::cuda_ok(cudaGetLastError());
  tessera_test::cuda_ok(cudaMemcpy(got.data(), device_got, got.size() * sizeof(results), cudaMemcpyDeviceToHost));
  tessera_test::cuda_ok(cudaFree(device_given));
  tessera_test::cuda_ok(cudaFree(device_got));

  int exact_mismatches[16] = {};
  int close_mismatches[4] = {};
  for (std::size_t i = 0; i < given.size(); ++i) {
    results const wanted = evaluate(given[i]);
    for (int j = 0; j < 16; ++j) {
      exact_mismatches[j] += got[i].exact[j] != wanted.exact[j] ? 1 : 0;
    }
    for (int j = 0; j < 4; ++j) {
      close_mismatches[j] += near(got[i].close[j], wanted.close[j]) ? 0 : 1;
    }
  }
  for (int j = 0; j < 16; ++j) {
    INFO("exact result " << j);
    CHECK(exact_mismatches[j] == 0);
  }
  for (int j = 0; j < 4; ++j) {
    INFO("close result " << j);
    CHECK(close_mismatches[j] == 0);
  }
}
