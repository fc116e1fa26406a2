// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a loss's Reducer is an empty type, because programs make it where they need it
#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/reduce/sum.hpp>

using tile = tessera::gemm_tile<float, tessera::shape<64, 64, 8>>;

/// Sums of what lies above a number that is known at run time only.
struct sum_above : tessera::sum_reducer<float> {
  float least;
};

template <class Statistics>
void make_loss(tessera::linear_loss_inputs<float, int> const& inputs, tessera::linear_loss_outputs const& outputs,
               tessera::workspace const& space) {
  tessera::linear_loss<tile, Statistics>::forward(tessera::cpu{}, inputs, {}, outputs, space);
}

void make_losses(tessera::linear_loss_inputs<float, int> const& inputs, tessera::linear_loss_outputs const& outputs,
                 tessera::workspace const& space) {
  make_loss<tessera::sum_reducer<float>>(inputs, outputs, space);
#if defined(TESSERA_FAIL)
  make_loss<sum_above>(inputs, outputs, space);
#endif
}
