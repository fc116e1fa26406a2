// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: linear.forward takes an executor, inputs and weights as matrix_views of operands
#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/exec/cpu.hpp>

void multiply(tessera::matrix_view<tessera::bfloat16 const> inputs, tessera::matrix_view<float const> weights,
              tessera::matrix_view<tessera::bfloat16 const> same, tessera::matrix_view<float> outputs) {
  tessera::cpu const exec;
  tessera::linear<tessera::bfloat16>::forward(exec, inputs, same, outputs);
#if defined(TESSERA_FAIL)
  tessera::linear<tessera::bfloat16>::forward(exec, inputs, weights, outputs);
#else
  static_cast<void>(weights);
#endif
}
