// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: dense_attention.forward takes an executor, attention_inputs<T>, attention_options, attention_outputs<Result>
#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/exec/cpu.hpp>

void attend(tessera::attention_inputs<tessera::bfloat16> const& in,
            tessera::attention_outputs<tessera::bfloat16> const& out, tessera::workspace const& space) {
#if defined(TESSERA_FAIL)
  tessera::dense_attention::forward(tessera::cpu{}, in, out, tessera::attention_options{}, space);
#else
  tessera::dense_attention::forward(tessera::cpu{}, in, tessera::attention_options{}, out, space);
#endif
}
