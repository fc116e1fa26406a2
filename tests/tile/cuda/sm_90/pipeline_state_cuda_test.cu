// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

/// Counts the lanes whose state is not that of their number of steps.
template <int Stages>
__global__ void walk_stages(std::int32_t* wrong) {
  auto const is_at = [](pipeline_state<Stages> const& state, int steps) {
    return state.stage == steps % Stages && state.phase == static_cast<unsigned>(steps / Stages % 2);
  };
  int const lane = static_cast<int>(threadIdx.x);
  pipeline_state<Stages> one_by_one;
  for (int steps = 0; steps < 5 * Stages; ++steps) {
    pipeline_state<Stages> at_once = one_by_one;
    at_once.skip(lane);
    pipeline_state<Stages> by_two = pipeline_state<Stages>::after(steps);
    by_two.go_on(1);
    by_two.go_on(2);
    bool const is_later = is_at(one_by_one.template later<0>(), steps) &&
                          is_at(one_by_one.template later<1>(), steps + 1) &&
                          is_at(one_by_one.template later<Stages>(), steps + Stages);
    bool const is_right =
        is_at(one_by_one, steps) && is_at(at_once, steps + lane) && is_at(by_two, steps + 3) && is_later;
    atomicAdd(wrong, is_right ? 0 : 1);
    one_by_one.advance();
  }
  pipeline_state<Stages> agreed;
  agreed.skip(lane + 3);
  agreed.agree();
  atomicAdd(wrong, is_at(agreed, 3) ? 0 : 1);
}

template <int Stages>
int wrong_states() {
  device_values<std::int32_t> const wrong(1);
  walk_stages<Stages><<<1, 32>>>(wrong.data());
  return wrong.download()[0];
}

}  // namespace

TEST_CASE("a pipeline's state counts stages and turns the phase after the last, one by one or at once", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_states<1>() == 0);
  CHECK(wrong_states<2>() == 0);
  CHECK(wrong_states<5>() == 0);
  CHECK(wrong_states<12>() == 0);
}
