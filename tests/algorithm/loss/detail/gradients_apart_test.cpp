// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/apart_gradients.hpp"
#include "support/catch.hpp"
#include "support/loss_runs.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("gradients of 16 bits are as exact without room for lower halves of all tokens", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::vector<std::int64_t> const& extents : {std::vector<std::int64_t>{270, 1000, 136},  // last rows are lent
                                                   {270, 420, 137},                            // all rows are
                                                   {270, 256, 136}}) {                         // they do not suffice
    check_all_apart<loss_on_small_tiles<bfloat16>, bfloat16>(exec, extents, 4e-3);
  }
  check_all_apart<loss_on_small_tiles<float16>, float16>(testing::adversary{.seed = 5}, {196, 420, 104}, 5e-4);
}
