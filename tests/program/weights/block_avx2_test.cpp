// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/core/cpu_features.hpp>
#include <tessera/program/weights/block_avx2.hpp>

#include "program/weights/block_steps.hpp"
#include "support/catch.hpp"

TEST_CASE("the block steps with AVX2 give the bytes of the portable steps", "[host]") {
  if (tessera::supported_simd_level() < tessera::simd_level::avx2) {
    TESSERA_SKIP("this processor has no AVX2");
  }
  tessera_test::block_steps::compare_block_steps<tessera::weight_block_steps_avx2>();
}
