// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "tile/pipelined_sum.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Program>
void check_sum(int steps) {
  CAPTURE(steps);
  cuda const exec;
  pipelined_sum_problem const expected(steps);
  auto const numbers = to_device(exec, expected.numbers);
  auto sums = to_device(exec, std::vector<float>(32, -1.0F));
  auto order = to_device(exec, std::vector<std::int32_t>(static_cast<std::size_t>(steps), -1));
  exec.run(Program{numbers.view(), sums.view(), order.view()}, 1);
  CHECK(to_host(exec, sums) == expected.sums);
  CHECK(to_host(exec, order) == expected.order);
}

}  // namespace

TEST_CASE("a pipelined loop on a GPU gives what the serial one gives", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (int const steps : {0, 1, 2, 3, 4, 5, 11, 200}) {
    check_sum<pipelined_sum<2>>(steps);
    check_sum<pipelined_sum<3>>(steps);
    check_sum<pipelined_sum<4>>(steps);
  }
}

TEST_CASE("each_fetched_in_rounds, and rings that lanes fill again, give on a GPU what the serial ones give",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (int const steps : {0, 1, 2, 3, 4, 5, 11, 200}) {
    check_sum<fetched_sum<1>>(steps);
    check_sum<fetched_sum<4>>(steps);
    check_sum<refilled_sum<false>>(steps);
    check_sum<refilled_sum<true>>(steps);
  }
}
