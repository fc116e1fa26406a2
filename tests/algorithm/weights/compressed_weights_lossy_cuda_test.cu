// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/neuzip.hpp>

#include "algorithm/weights/lossy_checks.cuh"

using namespace tessera;
using tessera_test::check_blocks;
using tessera_test::check_kinds;
using tessera_test::check_scales;

TEST_CASE("bf16 weights without mantissas have the same streams and values on the device as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<neuzip_lossy<0>>();
}

TEST_CASE("bf16 weights with three mantissa bits have the same streams and values on the device as on the host",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<neuzip_lossy<3>>();
}

TEST_CASE("lossy bf16 weights of all kinds of blocks have on the device the values that they have on the host",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_blocks<neuzip_lossy<0>>();
  check_blocks<neuzip_lossy<1>>();
  check_blocks<neuzip_lossy<3>>();
}

TEST_CASE("lossy weights of codes of a fixed length have on the device the values that they have on the host",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_blocks<compressed_weights<exponent_split<bfloat16>, fixed_coder, keep_mantissa<3>>>();
}

TEST_CASE("lossy bf16 weights of all sizes have on the device the values that they have on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_scales<neuzip_lossy<0>>({1e-39F, 1e-37F, 0.02F, 1e36F, 2e38F});
  check_scales<neuzip_lossy<1>>({1e-39F, 1e-37F, 0.02F, 1e36F, 2e38F});
  check_scales<neuzip_lossy<3>>({1e-39F, 1e-37F, 0.02F, 1e36F, 2e38F});
}

TEST_CASE("bf16 weights rounded in any way have the same streams and values on the device as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using split = exponent_split<bfloat16>;
  check_kinds<compressed_weights<split, rans_coder<12>, keep_mantissa<3, mantissa_rounding::half_even>>>();
  check_kinds<compressed_weights<split, rans_coder<12>, keep_mantissa<1, mantissa_rounding::toward_zero>>>();
  check_kinds<compressed_weights<split, rans_coder<12>, keep_mantissa<3, mantissa_rounding::stochastic>>>();
}
