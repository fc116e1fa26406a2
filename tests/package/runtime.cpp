// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program without .cu files may use tessera::cuda for the runtime library alone.
#include <cuda_runtime_api.h>

#include <cstdio>

float rounded_by_the_host(float value);

int main() {
  int version = 0;
  if (cudaRuntimeGetVersion(&version) != cudaSuccess) {
    return 1;
  }
  std::printf("CUDA runtime %d\n", version);
  return rounded_by_the_host(1.00390625F) == 1.0F ? 0 : 1;
}
