// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: attention.forward takes an executor, attention_inputs<T>, attention_options, attention_outputs
#include <cstddef>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

using method = tessera::sage_attention2;
using inputs = tessera::attention_inputs<tessera::bfloat16>;
using outputs = tessera::attention_outputs<tessera::bfloat16>;

/// What users derive from inputs is inputs, too.
struct padded_inputs : inputs {};

void attend(inputs& in, padded_inputs const& padded, tessera::attention_options& options, outputs& out,
            tessera::workspace& space) {
#if defined(TESSERA_FAIL)
  method::forward(tessera::cpu{}, in, in, options, out, space);
#else
  method::forward(tessera::cpu{}, in, options, out, space);
#endif
  method::forward(tessera::cpu{}, padded, options, {out.result}, space);
}
