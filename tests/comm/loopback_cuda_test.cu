// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <vector>

#include <tessera/comm/loopback.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/laws/comm/communicator.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

static_assert(Communicator<loopback, cuda>);

TEST_CASE("one rank keeps the laws of a Communicator on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  loopback ranks;
  CHECK(testing::check_communicator_laws(cuda{}, ranks).text() == "");
}
