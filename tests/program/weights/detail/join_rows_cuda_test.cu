// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of weights are tested with the decoder. This tests the exponents of pairs of codes for every window.
#include <cstdint>
#include <vector>

#include <tessera/program/weights/detail/join_rows.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

/// Counts, for every window with this base, the pairs of codes with an exponent that is not the window's.
template <int Shift>
__global__ void compare(std::uint32_t largest_exponent, int* wrong) {
  std::uint32_t const base = blockIdx.x;
  std::uint32_t const extra = blockIdx.y;
  exponent_window const window{static_cast<std::uint8_t>(base), static_cast<std::uint8_t>(extra)};
  if (!window.fits(largest_exponent)) {
    return;
  }
  std::uint32_t const first = threadIdx.x % 16;
  std::uint32_t const second = threadIdx.x / 16;
  // Bits above the type's exponents are dropped or masked where rows are joined.
  std::uint32_t const kept = (2 * (largest_exponent + 1) - 1) << Shift;
  auto const exponent = [&](std::uint32_t code) {
    return (code < exponent_window::neighbours ? base + code : extra + code - exponent_window::extra_code) << Shift;
  };
  std::uint32_t const expected = (exponent(first) & kept) | ((exponent(second) & kept) << 16);
  std::uint32_t const codes = first | (second << 16);
  std::uint32_t const found = window_exponents<false>(window).shifted(codes, Shift);
  bool is_right = found == expected;
  if (window.is_contiguous()) {
    is_right = is_right && window_exponents<true>(window).shifted(codes, Shift) == expected;
  }
  is_right = is_right && window.exponent(first) == ((exponent(first) >> Shift) & 0xffU);
  atomicAdd(wrong, is_right ? 0 : 1);
}

template <int Shift>
int count_wrong(std::uint32_t largest_exponent) {
  device_values<int> const wrong(std::vector<int>{0});
  compare<Shift><<<dim3(largest_exponent + 1, largest_exponent + 1), 256>>>(largest_exponent, wrong.data());
  tessera_test::cuda_ok(cudaGetLastError());
  return wrong.download()[0];
}

}  // namespace

TEST_CASE("pairs of codes have the exponents of their window, with one from elsewhere and without", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(count_wrong<7>(255) == 0);  // bf16
  CHECK(count_wrong<0>(255) == 0);  // fp32
  CHECK(count_wrong<10>(31) == 0);  // fp16
  CHECK(count_wrong<2>(31) == 0);   // e5m2
  CHECK(count_wrong<3>(15) == 0);   // e4m3
}
