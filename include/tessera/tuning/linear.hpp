// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the programs of algorithm/linear.hpp are laid out.
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The program for sm_90a: clusters of two thread blocks, which share their rows of the weights; each multiplies 128 x
/// 256.
struct warpgroup_gemm_policy {
  int stages;              ///< pieces of operands in shared memory, 48 KiB each
  int band;                ///< rows of cluster tiles that are walked together
  int producer_registers;  ///< of each thread of the warpgroup that starts copies
  int consumer_registers;  ///< of each thread of the two that multiply

  TESSERA_FN friend constexpr bool operator==(warpgroup_gemm_policy a, warpgroup_gemm_policy b) {
    return a.stages == b.stages && a.band == b.band && a.producer_registers == b.producer_registers &&
           a.consumer_registers == b.consumer_registers;
  }
};

struct warpgroup_gemm_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {4, 8, 24, 240}; }
};

}  // namespace v0
}  // namespace tessera
