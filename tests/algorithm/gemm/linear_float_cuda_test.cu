// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "algorithm/gemm/linear_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a linear layer of fp32 on a GPU is right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_aligned<float, float>(1, 1, 1);
  check_aligned<float, float>(65, 130, 100);
  check_linear<float, float>(65, 66, 67, {1, 0}, {1, 1});
  check_linear<float, float>(65, 66, 67, {2, 3}, {0, 0});
}

TEST_CASE("a linear layer of tf32 on a GPU sees the upper bits of its operands", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_aligned<tf32, float>(257, 300, 200);
  check_aligned<tf32, float>(129, 31, 33);
  check_aligned<tf32, float>(1, 16900, 72);
  check_linear<tf32, float>(65, 66, 67, {1, 0}, {1, 1});
  check_linear<tf32, float>(65, 66, 67, {2, 3}, {0, 0});
}
