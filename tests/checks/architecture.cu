// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiled for several architectures, to see what is said of them: checks.cmake.
#include <cstdio>

#include <tessera/exec/cuda.cuh>

int main() {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
    std::printf("[tessera:skipped] there is no device of compute capability 9.0\n");
    return 0;
  }
  tessera::cuda const first;
  tessera::cuda const second;
  std::printf("nothing else\n");
}
