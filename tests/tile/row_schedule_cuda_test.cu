// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "tile/scheduled_rows.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("workers of a row_schedule on a GPU make the tiles that they make on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  for (std::int32_t const rows : {1, 7, 32, 67}) {
    for (std::int32_t const columns : {1, 17, 64}) {
      CAPTURE(rows, columns);
      row_schedule const schedule = row_schedule::make(rows, columns, 5, 66, 10);
      std::vector<std::int32_t> expected(static_cast<std::size_t>(rows * columns), -1);
      auto made = to_device(exec, expected);
      cpu{.threads = 1}.run(scheduled_rows{schedule, {expected.data(), {rows, columns}}}, schedule.workers);
      exec.run(scheduled_rows{schedule, {made.data(), {rows, columns}}}, schedule.workers);
      CHECK(to_host(exec, made) == expected);
    }
  }
}
