// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: queries, keys, values and results of attention are bfloat16, float16 or float
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#if defined(TESSERA_FAIL)
using element = double;
#else
using element = float;
#endif

void attend(tessera::attention_inputs<element> const& inputs, tessera::attention_outputs<element> const& outputs,
            tessera::workspace const& space) {
  tessera::sage_attention2::forward(tessera::cpu{}, inputs, {.is_causal = true}, outputs, space);
}
