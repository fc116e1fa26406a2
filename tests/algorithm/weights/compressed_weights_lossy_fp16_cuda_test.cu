// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/neuzip.hpp>

#include "algorithm/weights/lossy_checks.cuh"

using namespace tessera;
using tessera_test::check_blocks;
using tessera_test::check_scales;

TEST_CASE("lossy fp16 weights of all kinds of blocks have on the device the values that they have on the host",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_blocks<neuzip_lossy<0, float16>>();
  check_blocks<neuzip_lossy<1, float16>>();
  check_blocks<neuzip_lossy<3, float16>>();
  check_blocks<neuzip_lossy<7, float16>>();
}

TEST_CASE("lossy fp16 weights of all sizes have on the device the values that they have on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_scales<neuzip_lossy<0, float16>>({1e-6F, 1e-4F, 0.02F, 1e3F, 5e4F});
  check_scales<neuzip_lossy<1, float16>>({1e-6F, 1e-4F, 0.02F, 1e3F, 5e4F});
  check_scales<neuzip_lossy<3, float16>>({1e-6F, 1e-4F, 0.02F, 1e3F, 5e4F});
  check_scales<neuzip_lossy<7, float16>>({1e-6F, 1e-4F, 0.02F, 1e3F, 5e4F});
}
