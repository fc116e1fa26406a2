// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a divergence gives q times its derivative by q: float slope\(float log_p, float log_q\) const
#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/exec/cpu.hpp>

/// How far logarithms are apart, without a derivative.
struct distance_alone {
  float value(float log_p, float log_q) const { return (log_p - log_q) * (log_p - log_q); }
};

#if defined(TESSERA_FAIL)
using chosen = distance_alone;
#else
using chosen = tessera::forward_kl;
#endif

tessera::workspace_plan plan() {
  return tessera::linear_distillation<float, chosen>::plan_forward(tessera::cpu{}, {4, 100, 16, 16});
}
