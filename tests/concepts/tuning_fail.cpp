// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Tuning is an empty type, because algorithms make it where they need it
#include <tessera/exec/policy_of.hpp>
#include <tessera/tuning/gemm/linear.hpp>

/// Has its numbers at run time, when kernels exist already.
struct with_state {
  using policy_type = tessera::warpgroup_gemm_policy;
  policy_type chosen;
  constexpr policy_type operator()(int) const { return chosen; }
};

int columns() {
#if defined(TESSERA_FAIL)
  return tessera::policy_of<with_state>(900).columns;
#else
  return tessera::policy_of<tessera::warpgroup_gemm_tuning>(900).columns;
#endif
}
