// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Our conversions against CUDA's own: its host emulation, which needs no device, and its instructions on one.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <random>

#include <tessera/core/precision.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

namespace {

using tessera::bfloat16;
using tessera::bit_cast;
using tessera::float16;
using tessera::float8_e4m3;
using tessera::float8_e5m2;
using tessera::load;
using tessera::scalar_traits;
using tessera::store;

// CUDA's conversions by our storage types, as bits.
__host__ __device__ std::uint32_t cuda_store(bfloat16, float value) {
  return static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(value)).x;
}
__host__ __device__ std::uint32_t cuda_store(float16, float value) {
  return static_cast<__half_raw>(__float2half_rn(value)).x;
}
__host__ __device__ std::uint32_t cuda_store(float8_e4m3, float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}
__host__ __device__ std::uint32_t cuda_store(float8_e5m2, float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2);
}

__host__ __device__ float cuda_load(bfloat16 value) {
  __nv_bfloat16_raw raw;
  raw.x = value.bits;
  return __bfloat162float(raw);
}
__host__ __device__ float cuda_load(float16 value) {
  __half_raw raw;
  raw.x = value.bits;
  return __half2float(raw);
}
__host__ __device__ float cuda_load(float8_e4m3 value) {
  return __half2float(__nv_cvt_fp8_to_halfraw(value.bits, __NV_E4M3));
}
__host__ __device__ float cuda_load(float8_e5m2 value) {
  return __half2float(__nv_cvt_fp8_to_halfraw(value.bits, __NV_E5M2));
}

template <class T>
__host__ __device__ bool store_agrees(std::uint32_t pattern) {
  float const value = bit_cast<float>(pattern);
  return store<T>(value).bits == cuda_store(T{}, value);
}

/// The same bits; from bf16 any NaN will do for a NaN, since sm_90's instruction drops the payload that others keep.
template <class T>
__host__ __device__ bool load_agrees(std::uint32_t pattern) {
  T const value{static_cast<typename scalar_traits<T>::bits_type>(pattern)};
  std::uint32_t const ours = bit_cast<std::uint32_t>(load(value));
  std::uint32_t const theirs = bit_cast<std::uint32_t>(cuda_load(value));
  bool const any_nan = scalar_traits<T>::exponent_bits == 8 && (value.bits & 0x7fffU) > 0x7f80U;
  return ours == theirs || (any_nan && (ours & 0x7fffffffU) > 0x7f800000U && (theirs & 0x7fffffffU) > 0x7f800000U);
}

/// The number of disagreements, and one input that shows it.
struct outcome {
  unsigned long long count;
  std::uint32_t input;
};

void note(outcome& found, std::uint32_t input, bool agrees) {
  if (!agrees && found.count++ == 0) {
    found.input = input;
  }
}

void report(outcome const& found) {
  INFO("an input: " << std::hex << found.input);
  CHECK(found.count == 0);
}

constexpr int threads = 256;
constexpr std::uint32_t blocks = 1U << 12;

/// Every one of the 2^32 floats.
template <class T>
__global__ void compare_all_stores(outcome* found) {
  std::uint64_t const step = std::uint64_t{gridDim.x} * blockDim.x;
  std::uint64_t const first = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::uint64_t pattern = first; pattern >> 32 == 0; pattern += step) {
    if (!store_agrees<T>(static_cast<std::uint32_t>(pattern))) {
      atomicAdd(&found->count, 1ULL);
      found->input = static_cast<std::uint32_t>(pattern);
    }
  }
}

template <class T>
__global__ void compare_all_loads(outcome* found) {
  std::uint32_t const pattern = blockIdx.x * blockDim.x + threadIdx.x;
  if (pattern >> scalar_traits<T>::bits == 0 && !load_agrees<T>(pattern)) {
    atomicAdd(&found->count, 1ULL);
    found->input = pattern;
  }
}

outcome fetch(outcome* device) {
  tessera_test::cuda_ok(cudaGetLastError());
  outcome found{};
  tessera_test::cuda_ok(cudaMemcpy(&found, device, sizeof(found), cudaMemcpyDeviceToHost));
  tessera_test::cuda_ok(cudaFree(device));
  return found;
}

outcome* fresh_outcome() {
  void* memory = nullptr;
  tessera_test::cuda_ok(cudaMalloc(&memory, sizeof(outcome)));
  tessera_test::cuda_ok(cudaMemset(memory, 0, sizeof(outcome)));
  return static_cast<outcome*>(memory);
}

}  // namespace

TEMPLATE_TEST_CASE("load gives the bits of CUDA's host conversion for every pattern", "[host][precision]", bfloat16,
                   float16, float8_e4m3, float8_e5m2) {
  outcome found{};
  for (std::uint32_t pattern = 0; pattern >> scalar_traits<TestType>::bits == 0; ++pattern) {
    note(found, pattern, load_agrees<TestType>(pattern));
  }
  report(found);
}

TEMPLATE_TEST_CASE("store gives the bits of CUDA's host conversion at every exponent and mantissa edge",
                   "[host][precision]", bfloat16, float16, float8_e4m3, float8_e5m2) {
  outcome found{};
  for (std::uint32_t exponent = 0; exponent < 512; ++exponent) {  // with the sign
    for (std::uint32_t high = 0; high < (1U << 12); ++high) {     // one bit below fp16's midpoints
      std::uint32_t const pattern = (exponent << 23) | (high << 11);
      for (std::uint32_t const beside : {pattern - 1U, pattern, pattern + 1U}) {
        note(found, beside, store_agrees<TestType>(beside));
      }
    }
  }
  report(found);
}

TEMPLATE_TEST_CASE("store gives the bits of CUDA's host conversion for random floats", "[host][precision]", bfloat16,
                   float16, float8_e4m3, float8_e5m2) {
  std::mt19937 random(11);
  outcome found{};
  for (int i = 0; i < 2000000; ++i) {
    auto const pattern = static_cast<std::uint32_t>(random());
    note(found, pattern, store_agrees<TestType>(pattern));
  }
  report(found);
}

TEMPLATE_TEST_CASE("store gives the bits of the GPU's own conversion for every float there is", "[cuda][precision]",
                   bfloat16, float16, float8_e4m3, float8_e5m2) {
  TESSERA_NEEDS_CUDA();
  outcome* const found = fresh_outcome();
  compare_all_stores<TestType><<<blocks, threads>>>(found);
  report(fetch(found));
}

TEMPLATE_TEST_CASE("load gives the bits of the GPU's own conversion for every pattern", "[cuda][precision]", bfloat16,
                   float16, float8_e4m3, float8_e5m2) {
  TESSERA_NEEDS_CUDA();
  outcome* const found = fresh_outcome();
  compare_all_loads<TestType><<<(1U << 16) / threads, threads>>>(found);
  report(fetch(found));
}

TEST_CASE("storage types have the size and alignment of CUDA's", "[host][precision]") {
  STATIC_REQUIRE(sizeof(bfloat16) == sizeof(__nv_bfloat16));
  STATIC_REQUIRE(alignof(bfloat16) == alignof(__nv_bfloat16));
  STATIC_REQUIRE(sizeof(float16) == sizeof(__half));
  STATIC_REQUIRE(alignof(float16) == alignof(__half));
  STATIC_REQUIRE(sizeof(float8_e4m3) == sizeof(__nv_fp8_e4m3));
  STATIC_REQUIRE(sizeof(float8_e5m2) == sizeof(__nv_fp8_e5m2));
}
