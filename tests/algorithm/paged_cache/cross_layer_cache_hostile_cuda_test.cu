// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/exec/cuda.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/hostile_sequences.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("lists that cannot be are reported by a GPU as by the host, and nothing else happens", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 96, 128}) {
    check_hostile_lists(cuda{}, channels);
  }
  check_hostile_lists(cuda{}, 128, {3, 3});
  check_hostile_lists(cuda{}, 128, {4, 2});
}
