// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Warpgroups, warps, tiles and pipeline stages for the programs of algorithm/attention/dense_attention.hpp, for sm_90a
/// and for GPUs without wgmma, with the measurements that chose them.
#pragma once

#include <tessera/config.hpp>
#include <tessera/tuning/attention/attention.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of dense_warpgroup_attention. A thread block has 64 rows of queries for each consumer warpgroup.
struct dense_attention_policy {
  int consumers;           ///< consumer warpgroups
  int keys;                ///< keys of a tile
  int stages;              ///< pipeline stages, each a tile of keys and a tile of values
  int query_stages;        ///< blocks of queries in shared memory
  bool overlaps;           ///< whether a tile's scores are begun before the weights of the tile before are multiplied
  bool alternates;         ///< whether warpgroups take turns in starting products
  int producer_registers;  ///< registers of each thread of the producer warpgroup
  int consumer_registers;  ///< registers of each thread of the consumer warpgroups

  friend constexpr bool operator==(dense_attention_policy const&, dense_attention_policy const&) = default;
};

/// The policy of dense_by_warps.
struct dense_warps_policy {
  int warps;                 ///< warps of a thread block
  int tiles;                 ///< 16 rows of queries of a warp
  int keys;                  ///< keys of a tile
  int stages;                ///< tiles of keys, and of values, in shared memory
  bool keeps_queries;        ///< whether queries stay in registers
  int blocks;                ///< thread blocks of a multiprocessor that registers are for
  bool skips;                ///< whether warps pass over tiles of which they see no key
  bool walks_lists = false;  ///< whether there are lists of tiles, of 64 queries each

  friend constexpr bool operator==(dense_warps_policy const&, dense_warps_policy const&) = default;
};

/// The policy for `Channels` channels.
///
/// H200, TFLOP/s, counting 4 * queries * keys * channels operations a head (half of them if causal), 2 x 16 heads of
/// 16384 tokens of N(0, 1) of 128 channels; variants and cuDNN (PyTorch 2.11) in turns on one card at its power limit,
/// which lowers the clock, so that figures of different runs do not compare. A policy is written as warpgroups x keys;
/// "turns" is `alternates`. Two runs:
///
///     128 channels              full  causal         full  causal
///     2 x 128, turns             629     612
///     2 x 128                    637     620          603     588
///     2 x 128, 3 stages, turns   640     617
///     2 x 160                                         642     623
///     2 x 160, turns             658     638          604     589
///     2 x 176                    662     632          626     607
///     2 x 176, turns             647     627
///     2 x 192, turns             637     614
///     3 x 128 without overlap    535     525
///     cuDNN                      608     555          585     541
///
/// Outputs that are not scaled where all factors are 1: 2 x 128 with turns 647 and 625 in place of 629 and 612 (first
/// run).
///
/// 64 channels, 2 x 32 heads:                           256 channels, 16 heads:
///     3 x 128, turns     521, 498 (cuDNN 467, 448)         2 x 80          697, 679 (cuDNN 642, 595)
///     3 x 128            482, 458                          2 x 80, turns   698, 676
///     2 x 192, turns     455, 440                          2 x 64, turns   645, 622
///     2 x 128, turns     433, 417                          2 x 64          635, 620
///     3 x 96, turns      460, 445 (cuDNN 465, 441)
///     3 x 160, turns     311, 300 (spills)
///
/// The tensor cores are busy in 80 % of cycles (ncu, 2 x 176, 16 heads), L2 in 35 %.
template <int Channels>
struct dense_attention_tuning {
  using policy_type = dense_attention_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 128  ? policy_type{2, 80, 2, 1, true, false, 40, 232}
           : Channels > 64 ? policy_type{2, 160, 2, 1, true, false, 40, 232}
                           : policy_type{3, 128, 2, 2, true, true, 32, 160};
  }
};

/// The policy of dense_by_warps for `Channels` channels.
///
/// sm_80's code on an H200, TFLOP/s, full and causal, 16384 tokens of N(0, 1), variants and FlashAttention-2 (that of
/// PyTorch 2.11, which is sm_80's code, too) in turns. Warps have one stage, queries in shared memory and 32 rows,
/// unless something else stands there; "kept" queries stay in registers. Two runs:
///
///     128 channels, 2 x 16 heads                     64 channels, 2 x 32 heads
///     4 warps, 64 keys                   378, 369    4 warps, 128 keys                       361, 344
///     4 warps, 64 keys, 2 stages         367, 355    4 warps, 64 keys, 2 stages, kept        353, 337
///     4 warps, 32 keys, 2 stages         374, 366    4 warps, 128 keys, kept (spills)        348, 333
///     4 warps, 32 keys, 2 stages, kept   329, 319    4 warps, 64 keys, kept                  347, 334
///     8 warps, 64 keys, 2 stages         351, 337    3 blocks of 4 warps, 64 keys, 2 stages  337, 322
///     8 warps of 16 rows, 2 stages, kept 298, 301    4 blocks of 4 warps of 16 rows, kept    327, 312
///     FlashAttention-2                   356, 341    FlashAttention-2                        310, 299
///
///     4 warps, 64 keys                   355, 346    4 warps, 128 keys                       353, 338
///     the same, passing over tiles       376, 363    the same, passing over tiles            336, 324
///     4 warps, 80 keys                   338, 328    4 warps, 96 keys                        342, 331
///     FlashAttention-2                   341, 332    FlashAttention-2                        298, 293
///
///     256 channels, 16 heads, warps of 16 rows
///     8 warps, 32 keys                   279, 282    8 warps, 32 keys, kept                  314, 309
///     8 warps, 64 keys                   306, 309    8 warps, 48 keys, kept                  325, 323
///     8 warps, 32 keys, kept             320, 325    8 warps, 64 keys, kept (spills)         294, 294
///     8 warps, 32 keys, 2 stages, kept   301, 303    2 blocks of 4 warps, 48 keys, kept      293, 295
///     FlashAttention-2                   328, 311    FlashAttention-2                        324, 306
///
/// Without the largest score of a tile, but its scores made again if the sum of weights shows a reference that is too
/// low, 128 channels have 338 and 324, 64 have 248 and 231: weights are then not made beside products with values.
template <int Channels>
struct dense_warps_tuning {
  using policy_type = dense_warps_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 128  ? policy_type{8, 1, 48, 1, true, 1, false}
           : Channels > 64 ? policy_type{4, 2, 64, 1, false, 2, true}
                           : policy_type{4, 2, 128, 1, false, 2, false};
  }
};

/// The policy of dense_by_warps for `Channels` channels and lists of tiles: a thread block has the 64 queries of one.
template <int Channels>
struct dense_listed_tuning {
  using policy_type = dense_warps_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 128  ? policy_type{4, 1, 32, 1, true, 2, false, true}
           : Channels > 64 ? policy_type{2, 2, 64, 1, false, 4, false, true}
                           : policy_type{2, 2, 128, 1, false, 4, false, true};
  }
};

/// Which calls dense_by_warps takes, and how it splits keys. Costs are in times of a tile of keys.
struct dense_warps_choice {
  int few_queries;  ///< queries of which blocks of 64, as the portable program has them, are faster without splits
  int least_tiles;  ///< the fewest tiles of keys of a split
  int begin;        ///< what a thread block costs beside its tiles
  int merging;      ///< what it costs to merge splits
  int merged_rows;  ///< rows of queries whose merging costs one more

  friend constexpr bool operator==(dense_warps_choice const&, dense_warps_choice const&) = default;
};

/// The choice.
struct dense_warps_choice_tuning {
  using policy_type = dense_warps_choice;
  TESSERA_FN constexpr policy_type operator()(int) const { return {64, 8, 3, 4, 150}; }
};

/// The policy by which the last work items of sm_90a's program are split. Costs are in quarters of the time of a tile.
struct dense_split_tuning {
  using policy_type = attention_split_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {{3, 4, 5, 5}, 1, 16, 6, 12, 200}; }
};

}  // namespace v0
}  // namespace tessera
