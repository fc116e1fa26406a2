// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: attention.forward takes an executor, attention_inputs<T>, attention_options, attention_outputs
#include <cstddef>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

using method = tessera::sage_attention2;
using inputs = tessera::attention_inputs<tessera::bfloat16>;
using outputs = tessera::attention_outputs<tessera::bfloat16>;

void attend(inputs const& in, tessera::attention_options const& options, outputs const& out,
            tessera::workspace const& space) {
#if defined(TESSERA_FAIL)
  method::forward(in, options, out, space);
#else
  method::forward(tessera::cpu{}, in, options, out, space);
#endif
}
