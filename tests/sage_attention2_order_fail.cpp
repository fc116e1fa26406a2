// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: attention.forward takes an executor, attention_inputs<T>, attention_options, attention_outputs
#include <cstddef>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

using method = tessera::sage_attention2;
using inputs = tessera::attention_inputs<tessera::bfloat16>;
using outputs = tessera::attention_outputs<tessera::bfloat16>;

void attend(tessera::head_view<tessera::bfloat16 const> q, tessera::head_view<tessera::bfloat16> result,
            tessera::workspace const& space) {
  outputs const out{result};
#if defined(TESSERA_FAIL)
  method::forward(tessera::cpu{}, {q, q, q}, out, {.is_causal = true}, space);
#else
  method::forward(tessera::cpu{}, {q, q, q}, {.is_causal = true}, out, space);
#endif
}
