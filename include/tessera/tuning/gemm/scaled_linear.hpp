// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tile sizes, stages and registers for the programs of algorithm/gemm/scaled_linear.hpp, with the measurements that
/// chose them.
#pragma once

#include <tessera/config.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of products of 8-bit codes with scales for groups of columns (program/gemm/gemm_scaled_groups.cuh).
struct scaled_groups_policy {
  warpgroup_gemm_policy tiles;  ///< tiles, clusters and registers; shared memory holds scales beside the stages
  int part_columns;             ///< columns of a tile whose sums are in registers at a time
  int sets;                     ///< sets of registers for sums: with 2, a part is multiplied while the last is scaled
  int scales_ahead;             ///< pairs of scales of columns that are loaded before the sums are there

  TESSERA_FN friend constexpr bool operator==(scaled_groups_policy a, scaled_groups_policy b) {
    return a.tiles == b.tiles && a.part_columns == b.part_columns && a.sets == b.sets &&
           a.scales_ahead == b.scales_ahead;
  }
};

/// The policy for 8-bit floats, where rows of weights share scales.
///
/// H200, e4m3, 4096 x 8192 x 8192, scales of 128 x 128 for weights, TFLOP/s in turn with cuBLAS's fp8, which has one
/// scale and reached 1560 to 1580: 1357 to 1371, 0.865 to 0.871 of cuBLAS. Before, while warps of the producer copied
/// all scales to shared memory, one by one with an arrival of each thread, 1180 to 1209; loads of a thread's own scales
/// a k-tile ahead are what made the difference. Without any promotion of sums: 1480. Other policies: 240 registers
/// 1338 to 1353; four stages 1355, two 1135; clusters of one block 1343; two sets of 64 columns 1306 to 1323; one set
/// of 64 1278; warpgroups that take turns 1307 to 1320; a from registers 1256, with spills; 192 columns at a time 1255;
/// 128 columns and five stages 1066; bands of 4 and of 16 the same within noise.
///
/// By ncu a multiply-addition takes 2.6 cycles of its warp, of which 0.9 are stalls of dispatch, and 3.4 with two sets:
/// presumably because tensor cores read and write sums through the same registers' ports.
struct scaled_groups_tuning {
  using policy_type = scaled_groups_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {{256, 2, 3, 8, 40, 232}, 128, 1, 0}; }
};

/// The same for 8-bit integers, whose sums are converted too, which takes longer than 128 columns are multiplied.
///
/// H200, 4096 x 8192 x 8192, TFLOP/s beside the same fp8 product of cuBLAS: 1110 to 1229; one set of 128 columns 961 to
/// 1068, and 1098 to 1139 where warpgroups take turns; before, with all scales copied to shared memory, 1030 to 1060.
struct scaled_integers_tuning {
  using policy_type = scaled_groups_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {{256, 2, 3, 8, 24, 240}, 64, 2, 0}; }
};

/// The same where each row of weights has scales of its own, which are read from shared memory.
///
/// H200, e4m3 and int8, 4096 x 8192 x 8192, TFLOP/s beside the same fp8 product of cuBLAS, with 24 and 240 registers:
/// 893 to 971 and 833 to 851, in one run each with bands of 4, 8 and 16. None of the scales ahead 827 to 923 and 808 to
/// 855, 8 pairs 831 to 880 and 800 to 806 with spills for integers, 12 910 and 770 with spills; two sets of 64 columns
/// 760 to 861 and 759 to 792; warpgroups that take turns 927 and 838. Before: 819 to 888 and 774 to 837.
struct scaled_columns_tuning {
  using policy_type = scaled_groups_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {{256, 2, 3, 8, 24, 240}, 128, 1, 4}; }
};

/// The policy of products of scaled codes by gemm_ring, for devices with 140 KiB for a thread block: stages have 120,
/// an epilogue 16 and scales 4. A warp has 48 x 64 sums, and as many totals: 192 registers.
///
/// What bounds it: a warp's stage is 96 products, which take tensor cores of sm_80 768 cycles, and those of sm_90, by
/// sm_80's code, about 620. The same scheduler issues 96 multiply-additions beside them, for integers also 96
/// subtractions, and 96 multiplications where columns share no scales. A multiprocessor reads 112 KiB from shared
/// memory for its tile's stage and writes 40, in 1216 of the 1536 cycles that its tensor cores take on sm_80. A
/// conversion in place of the subtraction would be one of the special functions' unit on sm_80, which takes 8 cycles
/// for a warp: 768 cycles, too.
///
/// sm_80's code on an H200, int8, 4096 x 18432 x 7168, TFLOP/s in turns with `linear`, which reached 892 (gemm_ring),
/// cuBLAS's int8, 1593, and its bf16, 808; scales of weights for 128 x 128 and for 1 x 128. The portable program, which
/// ran before: 18.
///
///     192 x 128, three stages                    632   523
///     192 x 128, two stages                      594   541
///     96 x 256, three stages                     637
///     96 x 128, two stages, two groups           602   511
///     128 x 128 by 8 warps, three stages, two    585, 452
///
/// 8192^3: 654 and 544 of 900, two stages 617 and 555. Rows of three parts in registers in place of two: 627 and 522,
/// with spills for sm_80.
///
/// By ptxas 245 to 255 registers for sm_80, 86, 89 and 120, without spills.
struct scaled_ring_tuning {
  using policy_type = gemm_ring_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {192, 128, 256, 128, 3, 1}; }
};

/// The same for devices with 99 KiB for a thread block, for weights whose rows share no scales, and for 8-bit floats
/// from sm_89 on.
///
/// sm_89's code on an H200, which multiplies 8-bit floats by mma.sync as fp16, e4m3, 4096 x 18432 x 7168, TFLOP/s with
/// scales for 128 x 128 and for 1 x 128, in turns with `linear`, 334: 282 and 274, three stages 267 and 250; 96 x 128
/// with two groups 273 and 260.
struct small_scaled_ring_tuning {
  using policy_type = gemm_ring_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {192, 128, 256, 128, 2, 1}; }
};

/// The policy for 8-bit floats that are widened to fp16, before sm_89: a warp has 32 x 64 sums and totals, because
/// operands take twice the registers.
///
/// sm_80's code on an H200, e4m3, 4096 x 18432 x 7168, TFLOP/s in turns with `linear`, 133 (portable 16): 107 with
/// scales for 128 x 128, 118 for 1 x 128.
///
/// By ptxas 239 to 249 registers for sm_80 and sm_86, without spills.
struct widened_scaled_ring_tuning {
  using policy_type = gemm_ring_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {128, 128, 256, 128, 2, 1}; }
};

/// The same for devices with 116 KiB for a thread block: 117 with scales for 128 x 128.
struct wide_widened_ring_tuning {
  using policy_type = gemm_ring_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {128, 128, 256, 128, 3, 1}; }
};

}  // namespace v0
}  // namespace tessera
