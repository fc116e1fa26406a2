// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Reducer has identity\(\): state_type identity\(\) const
#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/exec/cpu.hpp>

using tile = tessera::gemm_tile<float, tessera::shape<64, 64, 8>>;

struct without_identity {
  using state_type = float;
  using input_type = float;
  void push(float& state, float value) const { state += value; }
  void merge(float& into, float other) const { into += other; }
};

tessera::workspace_plan plan() {
#if defined(TESSERA_FAIL)
  return tessera::linear_loss<tile, without_identity>::plan_forward(tessera::cpu{}, {4, 100, 16});
#else
  return tessera::linear_loss<tile, tessera::lse_reducer<float>>::plan_forward(tessera::cpu{}, {4, 100, 16});
#endif
}
