// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a workspace of plan_forward\(\), and perhaps attention_functions
#include <cstddef>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

using method = tessera::sage_attention2;
using inputs = tessera::attention_inputs<tessera::bfloat16>;
using outputs = tessera::attention_outputs<tessera::bfloat16>;

void attend(inputs const& in, outputs const& out, tessera::workspace_plan const& plan, std::vector<std::byte>& memory) {
#if defined(TESSERA_FAIL)
  method::forward(tessera::cpu{}, in, {}, out, memory);
#else
  method::forward(tessera::cpu{}, in, {}, out, tessera::workspace(plan, memory));
  method::forward(tessera::cpu{}, in, {}, out, {plan, memory});
#endif
}
