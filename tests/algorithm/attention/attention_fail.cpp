// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: the first quantizer of an attention has a granularity: symmetric_quantizer<8, per_thread>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

template <class QK>
tessera::workspace_plan plan_for(tessera::attention_shape const& shape) {
  return tessera::attention<QK, tessera::float8_quantizer<tessera::float8_e4m3>>::plan_forward(tessera::cpu{}, shape);
}

tessera::workspace_plan make_plan(tessera::attention_shape const& shape) {
#if defined(TESSERA_FAIL)
  return plan_for<tessera::symmetric_quantizer<8, 64>>(shape);
#else
  return plan_for<tessera::symmetric_quantizer<8, tessera::per_thread>>(shape);
#endif
}
