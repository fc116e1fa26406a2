// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: (cannot convert|no known conversion from) .*attention_outputs<.*>'?\)? to .*attention_options
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

void attend(tessera::head_view<tessera::bfloat16 const> q, tessera::head_view<tessera::bfloat16 const> k,
            tessera::head_view<tessera::bfloat16 const> v, tessera::head_view<tessera::bfloat16> result,
            tessera::workspace const& space) {
  tessera::attention_outputs<tessera::bfloat16> const outputs{result};
#if defined(TESSERA_FAIL)
  tessera::sage_attention2::forward(tessera::cpu{}, {q, k, v}, outputs, {.is_causal = true}, space);
#else
  tessera::sage_attention2::forward(tessera::cpu{}, {q, k, v}, {.is_causal = true}, outputs, space);
#endif
}
