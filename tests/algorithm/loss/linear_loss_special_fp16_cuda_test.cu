// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "algorithm/loss/special_values_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("NaNs and infinities of fp16 reach the same results on a GPU as on the CPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_special_values<float16>();
}
