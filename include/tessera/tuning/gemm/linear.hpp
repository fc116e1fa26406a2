// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tile sizes, clusters and pipeline stages for the programs of algorithm/gemm/linear.hpp, with the measurements that
/// chose them.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

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

/// The policy of sm_90a's products with weights from any TileSource: producer warpgroups make k-tiles of them.
struct source_gemm_policy {
  int rows;                ///< rows of a tile: 128 or 256, half of them for each consumer warpgroup
  int columns;             ///< columns of a tile: 64 or 128
  int stages;              ///< pipeline stages in shared memory, 128 * (rows + columns) bytes each
  int band;                ///< rows of tiles that are walked together
  int producers;           ///< producer warpgroups, which take turns: 1 or 2
  int producer_registers;  ///< registers of each of their threads
  int consumer_registers;  ///< registers of each thread of the two consumer warpgroups

  TESSERA_FN friend constexpr bool operator==(source_gemm_policy a, source_gemm_policy b) {
    return a.rows == b.rows && a.columns == b.columns && a.stages == b.stages && a.band == b.band &&
           a.producers == b.producers && a.producer_registers == b.producer_registers &&
           a.consumer_registers == b.consumer_registers;
  }
};

/// The policy for products with weights from a source that fill the chip. Tiles are tall, because a k-tile of weights
/// is made again for each tile of its column.
///
/// H100, codes of 8 and of 4 bits with groups of 128, 4096 x 8192 x 8192, rate over that of cuBLAS's bf16 product in
/// one run, with one and with two k-tiles on their way to a producer's registers: 0.72 and 0.41, 0.71 and 0.74. Two are
/// too many for 8 bits: producers spill 84 bytes. With 88 and 168 registers: two of 4 bits 0.73; H200, one: 0.69 and
/// 0.65. One producer warpgroup takes 1.4 to 1.7 times as long. Bands of 4 rows: 0.98 of this; of 16: the same. By ncu
/// tensor cores are busy for 0.72 of the cycles, and warps wait for memory or for barriers in 0.43 of their time.
///
/// H200, codes of 8 and of 4 bits, since these become floats without the instruction that converts integers
/// (tile/source/byte_as_float.hpp; 0.69 and 0.65 before): 0.74 and 0.77; with 88 and 168 registers 0.75 and 0.75; with
/// one producer warpgroup of 128 registers 0.55 and 0.65.
struct source_gemm_tuning {
  using policy_type = source_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {256, 128, 4, 8, 2, 80, 176}; }
};

/// The policy for products with weights from a source of so few tiles that tall ones would leave half of the chip idle,
/// and for outputs that threads store by themselves, for which tall tiles leave no registers.
struct small_source_gemm_tuning {
  using policy_type = source_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {128, 64, 8, 8, 2, 104, 152}; }
};

/// The policy of products whose weights from a source are written to memory, a panel of rows at a time.
struct panel_gemm_policy {
  int least_tokens;  ///< fewer tokens are multiplied by weights as they are made
  int rows;          ///< panels have a multiple of so many rows, as tiles have columns

  TESSERA_FN friend constexpr bool operator==(panel_gemm_policy a, panel_gemm_policy b) {
    return a.least_tokens == b.least_tokens && a.rows == b.rows;
  }
};

/// The policy for sm_90a, and for GPUs whose products are those of gemm_ring.
///
/// sm_90a, H200, codes of 8 and of 4 bits with groups of 128, 8192 x 8192 weights in bf16, rate over that of cuBLAS in
/// one run. Writing all of the weights takes 57 to 68 us, and the product with a matrix of weights has 0.98 and 1.00 of
/// cuBLAS's rate:
///
///     rows of a panel        none: gemm_from_source    1024           2048           4096           all
///        512 tokens          0.68  0.78             0.28  0.28     0.41  0.42     0.39  0.40     0.59  0.62
///       1024                 0.73  0.79             0.44  0.43     0.43  0.43     0.69  0.70     0.73  0.75
///       1536                 0.75  0.80             0.34  0.34     0.62  0.61     0.63  0.63     0.81  0.83
///       2048                 0.76  0.81             0.43  0.44     0.78  0.78     0.80  0.83     0.84  0.87
///       4096                 0.76  0.79             0.83  0.85     0.86  0.89     0.88  0.91     0.90  0.93
///      16384                 0.77  0.81             0.95  0.97     0.97  0.99     0.97  1.00     0.99  1.01
///
/// 4096 tokens, 14336 x 4096 in 8 bits and 4096 x 14336 in 4: none 0.76 and 0.80, 2048 rows 0.82 and 0.90, 4096 rows
/// 0.85 and 0.92, 8192 rows of the former 0.87.
///
/// sm_80's code on an H200, the same weights in one panel, TFLOP/s in turns in one run with gemm_ring over a matrix of
/// weights; 512, 1024, 1536, 2048 and 4096 tokens: 324, 385, 429, 424 and 448 from 8 bits, 332, 390, 435, 428 and 450
/// from 4, and 445, 457, 487, 464 and 468 of a matrix. gemm_ring with weights from a source has 0.78 of that with 4096
/// tokens. The portable programs have 77 and 93 there.
struct panel_gemm_tuning {
  using policy_type = panel_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int architecture) const {
    return {architecture >= 900 ? 1536 : 1024, 256};
  }
};

/// The policy of products of few rows with weights in chunks of codes (program/gemm/gemm_few_rows.cuh).
struct few_rows_policy {
  int rows;    ///< rows of the weights of a thread block, a multiple of 16
  int tokens;  ///< the most rows of the inputs, a multiple of 8
  int warps;   ///< warps of a thread block, which share the depth
  int ahead;   ///< steps of 64 or 128 columns that a warp has on their way to registers
  int blocks;  ///< thread blocks of a multiprocessor at a time, which limits registers

  TESSERA_FN friend constexpr bool operator==(few_rows_policy a, few_rows_policy b) {
    return a.rows == b.rows && a.tokens == b.tokens && a.warps == b.warps && a.ahead == b.ahead && a.blocks == b.blocks;
  }
};

/// The policy for up to 16 rows.
///
/// H200, 16 x 8192 x 8192 from memory, codes of 4 and of 8 bits with groups of 128, microseconds: 31 and 36; two steps
/// ahead 36 and 40, with spills; 64 rows and one block 33 and 39; 16 rows and two steps ahead 37 and 41.
///
/// NeuZip's codes of a fixed length, 12 bits a weight: 48 to 49, and 49 with one row (cuBLAS in bf16: 36 and 37); they
/// have a program of their own now, but for rows that are no multiples of 128 columns.
struct few_rows_tuning {
  using policy_type = few_rows_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {32, 16, 8, 1, 2}; }
};

/// The policy for up to 8 rows.
///
/// The same with 8 rows: 26 and 32; 32 rows to two blocks 26 and 33; 16 rows, two steps ahead and three blocks 34 and
/// 44.
struct fewest_rows_tuning {
  using policy_type = few_rows_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {16, 8, 8, 1, 4}; }
};

/// The policy for up to 16 rows where codes are exact and sums are scaled (program/gemm/gemm_few_rows_scaled.cuh):
/// `ahead` counts stages of two steps in shared memory.
///
/// H200, 16 x 8192 x 8192 from memory, codes of 4 bits with groups of 128, microseconds, in turns with cuBLAS in bf16,
/// which takes 35.7 to 37.4: 20.7; two stages 22.0; 64 rows, 16 warps and one block 22.0. Codes of 8 bits: 27.2, 28.2
/// and 32. More stages presumably leave less of the first-level cache, in which two blocks find the same inputs. Before
/// scales were copied to shared memory, one or two stages: 21.8.
///
/// Parts of it before that, measured by leaving the others out: a launch that ends at once 3.9; with copies of codes
/// alone 12.8, at 4.0 TB/s; with products, but no inputs 15.9. So inputs cost 6: each thread block reads all of them,
/// and eight rows of them lie apart, so that a load of a warp asks the first-level cache for eight lines. A lane's
/// columns being 32 neighbours: 24.5. Inputs loaded a step ahead, into the registers of those just used: 22.4. Teams of
/// warps that share inputs in shared memory: 27 to 45; clusters of thread blocks that share the depth, so that each
/// reads its part of the inputs once: 28.4 with two blocks, 39 with four and 42 with eight. Hints that the second-level
/// cache fetch 128 or 256 bytes: no difference.
struct scaled_few_rows_tuning {
  using policy_type = few_rows_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {32, 16, 8, 1, 2}; }
};

/// The same where the thread blocks are no more than multiprocessors.
///
/// H200, 16 x 4096 x 14336: 21.6, by the policy above 24.4.
struct narrow_scaled_few_rows_tuning {
  using policy_type = few_rows_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {32, 16, 16, 2, 1}; }
};

/// The same for up to 8 rows.
///
/// The same with one row of 8192 (cuBLAS: 36.1): 17.6; one stage ahead 17.0; 32 rows and two or three blocks 16.9 and
/// 17.4. One row, 4096 x 14336: 16.6; 16 warps and two blocks 15.9. Codes of 8 bits: 23.1; one stage ahead 23.6.
struct scaled_fewest_rows_tuning {
  using policy_type = few_rows_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {16, 8, 8, 2, 4}; }
};

/// The policy for up to 16 rows with weights of a coded_matrix (program/gemm/gemm_few_rows_coded.cuh): `ahead` counts
/// stages in shared memory.
///
/// H200, 16 x 8192 x 8192 from memory, microseconds, in turns with cuBLAS in bf16, which takes 36 to 37: 37.8 to 38.1,
/// by gemm_few_rows 49.
///
/// Parts of it, measured by leaving the others out, before weights that no code says were taken 32 at a time (37.4
/// then, and 46.5 in place of 43.7 with 1 % zeros): with copies of weights alone 31 to 32 (a launch that ends at once
/// 3.9); with products, but no inputs 34 to 35. So memory and products overlap but for a few microseconds. By ncu the
/// second-level cache reads 5.2 TB/s, and 1.3 times the bytes that are asked for, presumably because its halves fetch
/// from each other: inputs, which every thread block reads, are a third of that.
///
/// Tried, slower: a ring for each warp, and inputs from the first-level cache, 41 to 44 (copies alone 33); three stages
/// 42; stages of half of the columns 37 to 40; 64 rows of weights and one block 37 to 39; inputs copied through the
/// first-level cache 49; thread blocks that begin at different columns 43; bulk copies of rows by one warp 60, because
/// a copy of 256 to 1024 bytes takes the multiprocessor about 16 ns; two warps that walk through lists 40.
struct coded_few_rows_tuning {
  using policy_type = few_rows_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {32, 16, 8, 2, 2}; }
};

/// The same where the thread blocks are no more than multiprocessors.
///
/// H200, 16 x 4096 x 14336 (cuBLAS: 35): 36.5, by the policy above 39.7; by gemm_few_rows 63.
struct narrow_coded_few_rows_tuning {
  using policy_type = few_rows_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {32, 16, 16, 2, 1}; }
};

/// The same for up to 8 rows.
///
/// H200, one row of 8192 (cuBLAS: 36 to 37): 32.8; four stages of half of the columns 38.5; by gemm_few_rows 46.5.
struct coded_fewest_rows_tuning {
  using policy_type = few_rows_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {32, 8, 8, 3, 2}; }
};

/// The same for up to 8 rows where the thread blocks are no more than multiprocessors.
///
/// H200, one row, 4096 x 14336 (cuBLAS: 35): 32.1, by the policy above 33.3.
struct narrow_coded_fewest_rows_tuning {
  using policy_type = few_rows_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {32, 8, 16, 3, 1}; }
};

/// The policy of products of few rows whose weights come in boxes (program/gemm/gemm_few_rows_boxes.cuh).
struct few_rows_boxes_policy {
  int rows;       ///< rows of the weights of a thread block, a multiple of 16
  int tokens;     ///< the most rows of the inputs, a multiple of 8
  int warps;      ///< warps that multiply, which share rows and depth
  int row_tiles;  ///< tiles of 16 of these rows of a warp, for which it reads inputs once
  int stages;     ///< stages of 128 columns in shared memory
  int producers;  ///< warps that fill them

  TESSERA_FN friend constexpr bool operator==(few_rows_boxes_policy a, few_rows_boxes_policy b) {
    return a.rows == b.rows && a.tokens == b.tokens && a.warps == b.warps && a.row_tiles == b.row_tiles &&
           a.stages == b.stages && a.producers == b.producers;
  }
};

/// The policy for up to 16 rows with weights of a coded_matrix.
///
/// H200, 16 x 8192 x 8192 from memory, microseconds, in turns with cuBLAS in bf16, which takes 36 to 37: 34.0 to 34.5,
/// by gemm_few_rows_coded 37.8; with 1 % zeros, whose exponent is not of the window, 37.3 and 43.7. 4096 inputs and
/// 14336 outputs: 35.8 and 38.6.
///
/// Parts of it, measured by leaving the others out: bytes of sign and mantissa alone 22.6, with codes and inputs 31.9.
/// One warp for what no code says 34.8, and with 1 % zeros 44.6; four, which leave fewer registers, 35.8 and 39.8.
/// Twelve stages, which leave less of the first-level cache, 37.0, and with one producer 41.4. Two
/// tiles of rows a warp 35.6; 32 rows and two thread blocks a multiprocessor 36.4. Boxes of all stages before anything
/// else 37.0; blocks looked up only where a row's codes cross into the next 34.3 (4096 x 14336: 35.0 in place of 33.1);
/// boxes that L2 shall evict first 36.5.
struct coded_boxes_tuning {
  using policy_type = few_rows_boxes_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {64, 16, 16, 1, 8, 2}; }
};

/// The same where thread blocks of 32 rows are no more than multiprocessors.
///
/// H200, 16 x 4096 x 14336 (cuBLAS: 35 to 36): 32.7, by gemm_few_rows_coded 36.7.
struct narrow_coded_boxes_tuning {
  using policy_type = few_rows_boxes_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {32, 16, 16, 1, 16, 2}; }
};

/// The same for up to 8 rows.
///
/// H200, one row of 8192 (cuBLAS: 37): 32.5, by gemm_few_rows_coded 33.1; with 1 % zeros 33.7 and 36.6; twelve stages
/// 33.4.
struct fewest_coded_boxes_tuning {
  using policy_type = few_rows_boxes_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {64, 8, 16, 1, 8, 2}; }
};

/// The same for up to 8 rows where thread blocks of 32 rows are no more than multiprocessors.
///
/// H200, one row, 4096 x 14336 (cuBLAS: 35): 29.5, by gemm_few_rows_coded 32.1.
struct narrow_fewest_coded_boxes_tuning {
  using policy_type = few_rows_boxes_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {32, 8, 16, 1, 16, 2}; }
};

/// The policy for up to 16 rows with weights of exact codes with scales.
///
/// H200, 16 x 8192 x 8192 from memory, codes of 4 bits with groups of 128, microseconds, in turns with cuBLAS in bf16,
/// which takes 36 to 37: 18.1, by gemm_few_rows_scaled 20.8. Boxes started before scales 18.4, all at first 19.8.
/// Before that (19.0) one tile of rows a warp 20.3, four 25.1; one producer 24.5, two 19.4; 24 stages 19.3.
struct scaled_boxes_tuning {
  using policy_type = few_rows_boxes_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {64, 16, 16, 2, 16, 4}; }
};

/// The same where thread blocks of 32 rows are no more than multiprocessors.
///
/// H200, 16 x 4096 x 14336 (cuBLAS: 35 to 36): 18.3, by gemm_few_rows_scaled 21.6; boxes started before scales 19.1,
/// and with two producers 22.0.
struct narrow_scaled_boxes_tuning {
  using policy_type = few_rows_boxes_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {32, 16, 16, 1, 16, 4}; }
};

/// The same for up to 8 rows.
///
/// H200, one row of 8192 (cuBLAS: 36 to 37): 16.2 to 16.4, by gemm_few_rows_scaled 17.8; two producers 17.1; one tile
/// of rows a warp 17.6.
struct fewest_scaled_boxes_tuning {
  using policy_type = few_rows_boxes_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {64, 8, 16, 2, 16, 4}; }
};

/// The same for up to 8 rows where thread blocks of 32 rows are no more than multiprocessors.
///
/// H200, one row, 4096 x 14336 (cuBLAS: 35): 16.5, by gemm_few_rows_scaled 16.8.
struct narrow_fewest_scaled_boxes_tuning {
  using policy_type = few_rows_boxes_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {32, 8, 16, 1, 16, 4}; }
};

/// The policy of products by mma.sync, from sm_80 on.
struct gemm_ring_policy {
  int rows;     ///< rows of a tile
  int columns;  ///< columns of a tile
  int lanes;    ///< lanes of a group, 32 for each 64 x 64 sums, or for 48 x 64 or 32 x 64 that are scaled
  int bytes;    ///< bytes of depth in a stage
  int stages;   ///< stages of the ring, (rows + columns) * bytes bytes each
  int blocks;   ///< groups that share a multiprocessor

  TESSERA_FN friend constexpr bool operator==(gemm_ring_policy a, gemm_ring_policy b) {
    return a.rows == b.rows && a.columns == b.columns && a.lanes == b.lanes && a.bytes == b.bytes &&
           a.stages == b.stages && a.blocks == b.blocks;
  }
};

/// The policy for all devices: while one of the two groups of a multiprocessor is in its epilogue, or waits for a
/// stage, the other multiplies. A multiprocessor with 100 KiB of shared memory has one at a time.
///
/// sm_80's code on an H200, bf16, TFLOP/s, in turns in one run, in which the power limit leaves 1.5 to 1.6 GHz for
/// products of 4096^3 and more; rows x columns, bytes of depth, stages and groups; 2048^3, 4096^3, 8192^3, and
/// 8192 x 24576 x 2304:
///
///     128 x 128, 128, 2, 2                                            408   407   403   398
///     128 x 256, 128, 3, 1                                            426   425   425   419
///     192 x 256, 128, 3, 1                                            303   393   439   427
///     before: a sync for each stage, addresses computed for each
///     128 x 128, 128, 2, 2                                            397   388   390   383
///     in another run, where that had                                  398   384   383   372
///     128 x 256, 128, 3, 1, filled early                              417   420   416   409
///     128 x 256, 128, 4, 1, filled early                              415   423   415   406
///     128 x 256, 128, 4, 1                                            429   433   426   415
///     192 x 256, 128, 3, 1, filled early                              298   393   431   418
///
/// "Filled early": from the second quarter of a stage on, not from its middle. In that run, 192 x 256, 8192^3: all
/// copies at once 442, two at a time between products 434, one at a time 428; the barrier of the next stage tested four
/// parts before it is awaited 435 in place of 444. In a third run 8192^3 had, with a sync for each stage: 128 x 128
/// 397, with addresses computed once 404; 128 x 256 371 and 416; 192 x 256 with three stages 415 to 436, with two 420,
/// with bands of 4 426; 192 x 128, with two groups, 407. A kernel that is not persistent, with rows 16 bytes further
/// apart, had 356 to 410.
///
/// What bounds it: products whose operands are in registers have 620 TFLOP/s at the power limit (1.74 GHz, 6.07 cycles
/// each), with operands from shared memory, 64 x 64 sums a warp, 565, with 96 x 64 581. A stage of 128 x 128 sums takes
/// 781 cycles of tensor cores, and 64 KiB read from shared memory and 32 KiB written to it 768; one of 192 x 256 takes
/// 2342 and 1728. By ncu, which lets the clock rise, 8192^3 takes 2.24 ms in tiles of 192 x 256 (491 TFLOP/s; 11 rounds
/// of tiles for 10.4), L2 is busy for 0.39 of it and memory for 0.12; before, 2.50 ms, 0.56 and 0.14.
struct gemm_ring_tuning {
  using policy_type = gemm_ring_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {128, 128, 128, 128, 2, 2}; }
};

/// The policy of one group with 128 x 256 sums, for devices on which it may have the shared memory: 144 KiB and what an
/// epilogue has.
struct wide_gemm_ring_tuning {
  using policy_type = gemm_ring_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {128, 256, 256, 128, 3, 1}; }
};

/// The policy of one group with 192 x 256 sums, and 168 KiB.
struct tall_gemm_ring_tuning {
  using policy_type = gemm_ring_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {192, 256, 256, 128, 3, 1}; }
};

/// The policy of one group with 256 x 128 sums, and 144 KiB, for products whose weights come from a source: a stage of
/// these is made for 256 rows. gemm_ring_tuning is that of devices with less shared memory, and of few rows.
///
/// sm_80's code on an H200, codes of 8 and 4 bits, 4096 x 8192 x 8192, TFLOP/s in turns in one run, in which a matrix
/// of weights has 468, in such tiles 472: 366 and 370. Half of the warps decode a half of a stage after the others: 331
/// and 323, or where all do so earlier 331 and 352. 128 x 128 with two groups, which decode twice as often: 304 and
/// 317. In another run, a matrix 454: 355 and 357, and the same within 2 % where all decode from the second, third or
/// last quarter of a stage on. 256 rows, 64 tall tiles: 170 and 172, in tiles of 128 x 128 222; 512 rows: 338 and 342,
/// 286 and 297.
struct source_gemm_ring_tuning {
  using policy_type = gemm_ring_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {256, 128, 256, 128, 3, 1}; }
};

/// What a product of so many rows and columns costs by a policy: the sums of the multiprocessor that has most of them,
/// in hundredths of the time that one takes in the largest tiles: 192 x 256, or 256 x 128 with a source. So 4096^3
/// takes tiles of 128 x 256, of which a multiprocessor of 132 has 4, where it would have 3 of 192 x 256.
constexpr std::int64_t gemm_ring_cost(gemm_ring_policy policy, std::int64_t rows, std::int64_t columns,
                                      std::int64_t multiprocessors) {
  std::int64_t const percent = policy.rows >= 192 ? 100 : policy.columns == 256 ? 106 : 115;
  std::int64_t const tiles =
      divide_up(rows, std::int64_t{policy.rows}) * divide_up(columns, std::int64_t{policy.columns});
  std::int64_t const rounds = divide_up(tiles, multiprocessors * policy.blocks);
  std::int64_t const taken = rounds > 1 ? rounds * policy.blocks : divide_up(tiles, multiprocessors);
  return taken * policy.rows * policy.columns * percent;
}

}  // namespace v0
}  // namespace tessera
