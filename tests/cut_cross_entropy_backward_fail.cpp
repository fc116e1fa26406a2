// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: linear_loss.backward takes an executor, inputs<Label>, linear_loss_options, loss_upstream
#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>

using loss = tessera::cut_cross_entropy;
using matrix = tessera::matrix_view<tessera::bfloat16 const>;

void differentiate(loss::inputs<std::int64_t>& in, tessera::linear_loss_options& options,
                   tessera::matrix_view<tessera::bfloat16> hidden, tessera::linear_loss_gradients<float>& out,
                   tessera::workspace const& space) {
  loss::backward(tessera::cpu{}, in, {}, {}, {hidden, hidden}, space);
#if defined(TESSERA_FAIL)
  loss::backward(tessera::cpu{}, in, options, out, space);  // without upstream gradients
#else
  loss::backward(tessera::cpu{}, in, options, {}, out, space);
#endif
}
