// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/neuzip.hpp>

#include "algorithm/weights/lossy_checks.cuh"

using namespace tessera;
using tessera_test::check_blocks;
using tessera_test::check_kinds;
using tessera_test::check_scales;

TEST_CASE("fp32 weights with seven mantissa bits have the same streams and values on the device as on the host",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<neuzip_lossy<7, float>>();
}

TEST_CASE("lossy fp32 weights of all kinds of blocks have on the device the values that they have on the host",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_blocks<neuzip_lossy<0, float>>();
  check_blocks<neuzip_lossy<1, float>>();
  check_blocks<neuzip_lossy<3, float>>();
  check_blocks<neuzip_lossy<7, float>>();
  check_blocks<compressed_weights<exponent_split<float>, fixed_coder, keep_mantissa<1>>>();
}

TEST_CASE("lossy fp32 weights of all sizes have on the device the values that they have on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_scales<neuzip_lossy<0, float>>({1e-39F, 1e-37F, 0.02F, 1e36F, 2e38F});
  check_scales<neuzip_lossy<1, float>>({1e-39F, 1e-37F, 0.02F, 1e36F, 2e38F});
  check_scales<neuzip_lossy<3, float>>({1e-39F, 1e-37F, 0.02F, 1e36F, 2e38F});
  check_scales<neuzip_lossy<7, float>>({1e-39F, 1e-37F, 0.02F, 1e36F, 2e38F});
}
