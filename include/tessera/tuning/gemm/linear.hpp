// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tile sizes, clusters and pipeline stages for sm_90a's programs of algorithm/gemm/linear.hpp, with the measurements
/// that chose them.
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of sm_90a's products: clusters of thread blocks share their rows of b, and each block multiplies 128 x
/// columns.
struct warpgroup_gemm_policy {
  int columns;             ///< columns of a tile: 64, 128, 192 or 256
  int blocks;              ///< thread blocks of a cluster: 1 or 2
  int stages;              ///< pipeline stages in shared memory, 128 * (128 + columns) bytes each
  int band;                ///< rows of cluster tiles that are walked together
  int producer_registers;  ///< registers of each thread of the producer warpgroup
  int consumer_registers;  ///< registers of each thread of the two consumer warpgroups

  TESSERA_FN friend constexpr bool operator==(warpgroup_gemm_policy a, warpgroup_gemm_policy b) {
    return a.columns == b.columns && a.blocks == b.blocks && a.stages == b.stages && a.band == b.band &&
           a.producer_registers == b.producer_registers && a.consumer_registers == b.consumer_registers;
  }
};

/// The policy for products that fill the chip.
///
/// H200 at its power limit, bf16, TFLOP/s in one run with cuBLAS (its default / the fastest of its 8 proposals). 8192 x
/// 8192 x 8192: 683 with bands of 8, 683 with bands of 4, 678 with bands of 16 (cuBLAS 679 / 700). 8192 x 128256 x
/// 2304: 687, 683, 684 (655 / 718). Before finished tiles were written while the next one is multiplied: 680 and 670.
/// With arrivals at the other block's barriers that have release semantics for the cluster, which costs a memory
/// barrier in every step: 537 instead of 695.
struct warpgroup_gemm_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {256, 2, 4, 8, 24, 240}; }
};

/// The policy for products of so few tiles that large tiles would leave most of the chip idle: a quarter of the
/// columns, and no clusters.
struct small_warpgroup_gemm_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {64, 1, 8, 8, 24, 240}; }
};

}  // namespace v0
}  // namespace tessera
