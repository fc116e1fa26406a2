// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Quantizer has range\(\) const, a Reducer that takes in float
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

/// Its range is a number, not a Reducer.
struct with_fixed_range : tessera::symmetric_quantizer<8, 64> {
  float range() const { return 1.0F; }
  params_type fit(float range) const { return {range}; }
};

template <class Values>
tessera::workspace_plan plan_for(tessera::attention_shape const& shape) {
  using scores = tessera::symmetric_quantizer<8, tessera::per_thread>;
  return tessera::attention<scores, Values>::plan_forward(tessera::cpu{}, shape);
}

tessera::workspace_plan make_plan(tessera::attention_shape const& shape) {
#if defined(TESSERA_FAIL)
  return plan_for<with_fixed_range>(shape);
#else
  return plan_for<tessera::symmetric_quantizer<8, 64>>(shape);
#endif
}
