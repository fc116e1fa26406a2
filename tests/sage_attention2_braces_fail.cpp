// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: in braces without a type T and Result are bfloat16
#include <cstddef>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

using method = tessera::sage_attention2;
using inputs = tessera::attention_inputs<tessera::bfloat16>;
using outputs = tessera::attention_outputs<tessera::bfloat16>;

void attend(tessera::head_view<tessera::bfloat16 const> q, tessera::head_view<tessera::bfloat16> result,
            tessera::head_view<float const> wide, tessera::view<float, 3> log_sum_exp,
            tessera::workspace const& space) {
  method::forward(tessera::cpu{}, {q, q, q}, {}, {result}, space);
  method::forward(tessera::cpu{}, {.queries = q, .keys = q, .values = q}, {}, {result, log_sum_exp}, space);
#if defined(TESSERA_FAIL)
  method::forward(tessera::cpu{}, {wide, wide, wide}, {}, {result}, space);
#else
  method::forward(tessera::cpu{}, tessera::attention_inputs<float>{wide, wide, wide}, {}, outputs{result}, space);
#endif
}
