// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a softmax of attention makes codes of the quantizer of values
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

using scores = tessera::symmetric_quantizer<8, tessera::per_thread>;

template <class Values>
tessera::workspace_plan plan_for(tessera::attention_shape const& shape) {
  return tessera::attention<scores, Values, tessera::piecewise_linear_softmax>::plan_forward(tessera::cpu{}, shape);
}

tessera::workspace_plan make_plan(tessera::attention_shape const& shape) {
#if defined(TESSERA_FAIL)
  return plan_for<tessera::scaled_float_quantizer<tessera::float16>>(shape);
#else
  return plan_for<tessera::float8_quantizer<tessera::float8_e4m3>>(shape);
#endif
}
