// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the programs of algorithm/gemm/linear.hpp are laid out.
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The program for sm_90a: clusters of thread blocks that share their rows of b; each block multiplies 128 x columns.
struct warpgroup_gemm_policy {
  int columns;             ///< of a tile: 64, 128, 192 or 256
  int blocks;              ///< of a cluster: 1 or 2
  int stages;              ///< pieces of operands in shared memory, 128 * (128 + columns) bytes each
  int band;                ///< rows of cluster tiles that are walked together
  int producer_registers;  ///< of each thread of the warpgroup that starts copies
  int consumer_registers;  ///< of each thread of the two that multiply

  TESSERA_FN friend constexpr bool operator==(warpgroup_gemm_policy a, warpgroup_gemm_policy b) {
    return a.columns == b.columns && a.blocks == b.blocks && a.stages == b.stages && a.band == b.band &&
           a.producer_registers == b.producer_registers && a.consumer_registers == b.consumer_registers;
  }
};

/// For products that fill the chip.
///
/// H200 at its power limit, bf16, TFLOP/s in one run with cuBLAS (its default / the fastest of its 8 proposals):
/// 8192 x 8192 x 8192: bands of 8 683, of 4 683, of 16 678 (cuBLAS 679 / 700); 8192 x 128256 x 2304: 687, 683, 684
/// (655 / 718). Before finished tiles were written while the next is multiplied: 680 and 670. With arrivals at barriers
/// of the other block that release for the cluster, which costs a memory barrier in every step: 537 instead of 695.
struct warpgroup_gemm_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {256, 2, 4, 8, 24, 240}; }
};

/// For products of so few tiles that the large ones would leave most of the chip idle: a quarter of the columns, blocks
/// alone.
struct small_warpgroup_gemm_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {64, 1, 8, 8, 24, 240}; }
};

}  // namespace v0
}  // namespace tessera
