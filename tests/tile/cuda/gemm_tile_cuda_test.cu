// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/tile/cuda/gemm_tile.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/one_tile.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a warp multiplies tiles of every operand", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_tile<float, shape<16, 16, 8>, 32, b_layout::transposed>();
  check_tile<tf32, shape<16, 16, 8>, 32, b_layout::staged_transposed>();
  check_tile<bfloat16, shape<32, 16, 32>, 32, b_layout::staged_rows>();
  check_tile<bfloat16, shape<16, 16, 16>, 32, b_layout::transposed>();
  check_tile<float16, shape<16, 8, 16>, 32, b_layout::rows>();
  check_tile<float8_e4m3, shape<16, 16, 32>, 32, b_layout::staged_transposed>();
  check_tile<float8_e5m2, shape<16, 16, 64>, 32, b_layout::staged_rows>();
  check_tile<std::int8_t, shape<16, 16, 32>, 32, b_layout::rows>();
  check_tile<int4x2, shape<16, 16, 64>, 32, b_layout::rows>();
  check_tile<int4x2, shape<16, 8, 32>, 32, b_layout::staged_transposed>();
}

TEST_CASE("the warps of a block share a tile", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_tile<float, shape<64, 64, 8>, 128, b_layout::rows>();
  check_tile<bfloat16, shape<64, 64, 32>, 128, b_layout::staged_transposed>();
  check_tile<bfloat16, shape<32, 64, 16>, 64, b_layout::staged_rows>();
  check_tile<std::int8_t, shape<64, 128, 32>, 256, b_layout::staged_transposed>();
  check_tile<int4x2, shape<64, 128, 32>, 128, b_layout::staged_transposed>();
  check_tile<int4x2, shape<32, 64, 64>, 64, b_layout::transposed>();
  check_tile<bfloat16, shape<16, 64, 16>, 128, b_layout::staged_rows>();  // fewer rows than a square grid of warps has
  check_tile<bfloat16, shape<16, 128, 16>, 256, b_layout::staged_transposed>();
}
