// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdio>

#include <tessera/core/precision.hpp>

float rounded_by_the_host(float value);

static_assert(__cplusplus >= 202002L, "tessera::cuda asks nvcc for C++20");

__global__ void round_to_bf16(float value, float* out) {
  *out = tessera::load(tessera::store<tessera::bfloat16>(value));
}

// Without a device the program has still been compiled and linked, which is what this consumer is about.
int main() {
  int devices = 0;
  float const expected = rounded_by_the_host(1.00390625F);
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no device; the host says %g\n", double(expected));
    return expected == 1.0F ? 0 : 1;
  }
  float* out = nullptr;
  float result = 0;
  if (cudaMalloc(&out, sizeof(float)) != cudaSuccess) {
    return 1;
  }
  round_to_bf16<<<1, 1>>>(1.00390625F, out);
  if (cudaMemcpy(&result, out, sizeof(float), cudaMemcpyDeviceToHost) != cudaSuccess) {
    return 1;
  }
  std::printf("the device says %g, the host %g\n", double(result), double(expected));
  return result == expected ? 0 : 1;
}
