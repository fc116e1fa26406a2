// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/cuda.hpp"

namespace {

__global__ void write_answer(int* out) {
  *out = 42;
}

}  // namespace

TEST_CASE("a kernel of this build runs on the device", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  int* device = nullptr;
  tessera_test::cuda_ok(cudaMalloc(&device, sizeof(int)));
  write_answer<<<1, 1>>>(device);
  tessera_test::cuda_ok(cudaGetLastError());
  int answer = 0;
  tessera_test::cuda_ok(cudaMemcpy(&answer, device, sizeof(int), cudaMemcpyDeviceToHost));
  tessera_test::cuda_ok(cudaFree(device));
  CHECK(answer == 42);
}

TEST_CASE("a failed runtime call is thrown in CUDA's own words", "[cuda]") {
  CHECK_THROWS_WITH(tessera_test::cuda_ok(cudaErrorInvalidValue), tessera_test::contains("invalid argument"));
}
