// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a ScaleQuantizer is fitted to a magnitude: range\(\) is a Reducer with a float as its state
#include <tessera/exec/cpu.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/sage_attention2.hpp>

using scores = tessera::symmetric_quantizer<8, tessera::per_thread>;

template <class Values>
tessera::workspace_plan plan_for(tessera::attention_shape const& shape) {
  return tessera::attention<scores, Values>::plan_forward(tessera::cpu{}, shape);
}

tessera::workspace_plan make_plan(tessera::attention_shape const& shape) {
#if defined(TESSERA_FAIL)
  return plan_for<tessera::asymmetric_quantizer<8, 64>>(shape);
#else
  return plan_for<tessera::symmetric_quantizer<8, 64>>(shape);
#endif
}
