// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selectors whose landmarks are bytes. Those with 16-bit floats are in offloaded_cache_options_cuda_test.cu, and share
// the programs there.
#include <tessera/select/key_codes.hpp>
#include <tessera/select/random.hpp>
#include <tessera/select/recent.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/selector_steps.cuh"

using namespace tessera;
using tessera_test::check_selector;

TEST_CASE("chunks are selected by two bits a channel on a GPU as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_selector<key_code_selector<8>>();
}

TEST_CASE("chunks are selected by age and by lot on a GPU as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_selector<recent_selector<8>>();
  check_selector<random_selector<8>>();
}
