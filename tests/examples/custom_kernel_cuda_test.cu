// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/cuda/widen_int4.cuh>

#include "custom_layers.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

TEST_CASE("the kernel of the example is right on a GPU whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  for (std::int64_t const tokens : {1, 15, 16, 17, 129}) {
    for (std::int64_t const columns : {1, 31, 33, 65}) {
      for (std::int64_t const depth : {2, 126, 128, 130, 384, 128 * 35}) {
        CAPTURE(tokens, columns, depth);
        CHECK(tessera_test::is_right(exec, tokens, columns, depth));
      }
    }
  }
}
