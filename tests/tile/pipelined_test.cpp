// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "tile/pipelined_sum.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Program, class Exec>
void check_sum(Exec const& exec, int steps) {
  CAPTURE(steps);
  pipelined_sum_problem const expected(steps);
  std::vector<float> sums(32, -1.0F);
  std::vector<std::int32_t> order(static_cast<std::size_t>(steps), -1);
  exec.run(Program{{expected.numbers}, {sums}, {order}}, 1);
  CHECK(sums == expected.sums);
  CHECK(order == expected.order);
}

}  // namespace

TEST_CASE("a pipelined loop runs its steps in order, each with its own stage's data", "[host]") {
  for (int const steps : {0, 1, 2, 3, 4, 5, 11}) {
    check_sum<pipelined_sum<2>>(cpu{.threads = 1}, steps);
    check_sum<pipelined_sum<4>>(cpu{.threads = 1}, steps);
    check_sum<pipelined_sum<2>>(testing::adversary{.seed = 3}, steps);
    check_sum<pipelined_sum<3>>(testing::adversary{.seed = 4}, steps);
    check_sum<pipelined_sum<4>>(testing::adversary{.seed = 5}, steps);
  }
}

TEST_CASE("rings that lanes fill again, and each_fetched_in_rounds, keep the rules for programs", "[host]") {
  for (int const steps : {0, 1, 3, 4, 5, 11}) {
    check_sum<refilled_sum<false>>(testing::adversary{.seed = 6}, steps);
    check_sum<refilled_sum<true>>(testing::adversary{.seed = 7}, steps);
    check_sum<fetched_sum<1>>(testing::adversary{.seed = 8}, steps);
    check_sum<fetched_sum<4>>(testing::adversary{.seed = 9}, steps);
  }
}
