// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: attention.forward takes an executor, attention_inputs<T>, attention_options, attention_outputs
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#if defined(TESSERA_FAIL)
using options = tessera::linear_loss_options;  // of another algorithm
#else
using options = tessera::attention_options;
#endif

void attend(tessera::attention_inputs<float> const& in, tessera::attention_outputs<tessera::bfloat16> const& out,
            tessera::workspace const& space) {
  tessera::sage_attention2::forward(tessera::cpu{}, in, options{}, out, space);
}
