// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: the reducer of a loss is or has an lse_reducer<float> or an entropy_reducer<float>
#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/exec/cpu.hpp>

using tile = tessera::gemm_tile<float, tessera::shape<64, 64, 8>>;

template <class Reducer>
void make_loss(tessera::linear_loss_inputs<float, int> const& inputs, tessera::linear_loss_outputs const& outputs,
               tessera::workspace const& space) {
  tessera::linear_loss<tile, Reducer>::forward(tessera::cpu{}, inputs, {}, outputs, space);
}

void make_losses(tessera::linear_loss_inputs<float, int> const& inputs, tessera::linear_loss_outputs const& outputs,
                 tessera::workspace const& space) {
  make_loss<tessera::lse_reducer<float>>(inputs, outputs, space);
#if defined(TESSERA_FAIL)
  make_loss<tessera::sum_reducer<float>>(inputs, outputs, space);
#endif
}
