// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: smoothed values have the mean and the range of all tokens or both of a sample
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

template <class Values>
tessera::workspace_plan plan_for(tessera::attention_shape const& shape) {
  using keys = tessera::smoothed<tessera::symmetric_quantizer<8, tessera::per_thread>, tessera::sampled_mean>;
  return tessera::attention<keys, Values>::plan_forward(tessera::cpu{}, shape);
}

tessera::workspace_plan make_plan(tessera::attention_shape const& shape) {
  using ranged = tessera::sampled_range<tessera::float8_quantizer<tessera::float8_e4m3>>;
#if defined(TESSERA_FAIL)
  return plan_for<tessera::smoothed<ranged>>(shape);
#else
  return plan_for<tessera::smoothed<ranged, tessera::sampled_mean>>(shape);
#endif
}
