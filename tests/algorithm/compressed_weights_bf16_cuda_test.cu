// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "algorithm/lossless_on_device.cuh"

TEST_CASE("bf16 weights of every kind and number have the same streams on the device as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera_test::check_both_coders_on_device<tessera::bfloat16>();
}
