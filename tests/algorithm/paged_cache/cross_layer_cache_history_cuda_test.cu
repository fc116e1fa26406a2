// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/exec/cuda.cuh>

#include "support/cache_histories.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/page_runs.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a fork on a GPU goes on as it was when its origin has ended and the slot is in use again", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 96, 128}) {
    check_fork(cuda{}, channels);
  }
}

TEST_CASE("padding before a prompt sets no threshold on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (padding const kind : {padding::zeros, padding::equal, padding::turned, padding::not_finite}) {
    CAPTURE(static_cast<int>(kind));
    check_padding(cuda{}, retain_most_different::range(0.05F), kind);
    check_padding(cuda{}, retain_most_different::fraction(0.05F), kind);
  }
}
