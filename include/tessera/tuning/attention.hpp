// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the program of algorithm/attention.hpp for sm_90a is laid out.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The program for sm_90a: a block has 64 rows of queries for each warpgroup that multiplies.
struct warpgroup_attention_policy {
  int consumers;              ///< warpgroups that multiply
  int stages;                 ///< tiles of 128 keys, and of as many values, in shared memory
  int value_channels;         ///< that are multiplied at a time
  int product_sets;           ///< of registers for products; 0: which they take, is left to the compiler
  int producer_registers;     ///< of each thread of the warpgroup that starts copies
  int consumer_registers;     ///< of each thread of those that multiply
  bool has_first_tile_apart;  ///< whether the sequence's first tile has code of its own, so that the others' is shorter

  friend constexpr bool operator==(warpgroup_attention_policy const&, warpgroup_attention_policy const&) = default;
};

/// H200, TFLOP/s of the program alone, 4 * queries * keys * channels operations a head (half of them if causal), 8 x 16
/// heads of 4096, 2 x 16 of 16384 and 8 of 32768 tokens of 128 channels, and twice as many of 64. Lines under a number
/// of channels are of one run on one card, those of 128 before lanes gave back the scales that they read, which changed
/// less than 1 %; what this version does on another card is in bench/results:
///
///     128 channels                          4K    16K    32K   causal 4K    16K    32K
///     this                                 915    993    972         797    906    967
///     2 warpgroups, products overlapped    823    911    914         703    901    902
///     the same, one after the other        804    871    888         697    868    868
///     this, 4 of 16 exponentials by FMA    880    947    927         765    864    926
///     this, weights added up one by one    859    929    909         750    845    914
///      64 channels
///     this                                 629    688    692         552    659    680
///     3 warpgroups, 160 registers          573    640    655         499    620    645
///     2 warpgroups, products overlapped    496    552    564         437    542    558
///     this, 2 of 16 exponentials by FMA    623    677    680         549    651    670
///     this, 4 of 16 exponentials by FMA    618    661    664         539    631    645
///
/// "Overlapped": a warpgroup's softmax while its products with the tile before are computed, which takes 240 registers.
/// So other warpgroups hide what one waits for as well as its own products do, with fewer.
///
/// At 128 channels and 1.77 GHz schedulers issue in 47 % of cycles, tensor cores and exponentials take 49 and 51 %. A
/// warp's samples: 22 % waiting for products, 29 % in exponentials, the rest in other instructions. What did not help,
/// at 16K where this had 1014: products and the next scores of one warpgroup after the other (961 to 981), exponents,
/// exponentials and their packing interleaved by data dependences (1010 to 1015; the compiler's order is all exponents,
/// then all exponentials), a cluster of two that shares keys (980), 3 stages (973). In a long run the clock drops for
/// power: 940. Products of fewer channels at a time, 32 in two sets of registers that take turns, or one (1008 and 979
/// in turn with 956 and 949), or sets that are fixed (966).
///
/// Programs of 64 and 128 channels leave a register or two in memory for a part of each tile (ptxas: 32 and 24 bytes).
/// One without that, whose scales of keys come with values and are read and given back by four lanes, does the same at
/// 128 channels and 2 % less at 64.
///
/// 256 channels, 16 heads of 16384 tokens: 1094; 32 query heads of 4 key heads, causal: 1160, products one set after
/// the other 1058, sets of 96 channels 1108. 192 channels: 904, 844, 857. 3 tiles of keys do not fit.
template <int Channels>
struct warpgroup_attention_tuning {
  using policy_type = warpgroup_attention_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 128  ? policy_type{2, 2, 64, 2, 24, 240, false}
           : Channels > 64 ? policy_type{3, 4, 128, 0, 32, 160, false}
                           : policy_type{4, 6, 64, 0, 24, 112, true};
  }
};

/// How the last works of the program for sm_90a are shared. Costs are in quarters of the time of a tile.
struct attention_sharing_policy {
  int tile[4];     ///< what a tile costs one, two, three and four warpgroups of a block
  int ranges;      ///< for each multiprocessor
  int least;       ///< that a range costs
  int share;       ///< what a share costs beyond its tiles: its queries, and fp32 sums of 192 rows
  int merging;     ///< what it costs to merge shares
  int least_gain;  ///< at least one part in so many is to be saved
};

/// A tile takes 1.8 us at 128 channels.
struct attention_sharing_tuning {
  using policy_type = attention_sharing_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {{2, 3, 4, 5}, 1, 16, 6, 12, 200}; }
};

/// The program for few queries: how many bytes are under way.
struct few_queries_policy {
  int stages;  ///< tiles of 128 keys, and of as many values, in shared memory of a block
  int blocks;  ///< of a multiprocessor

  friend constexpr bool operator==(few_queries_policy const&, few_queries_policy const&) = default;
};

/// 32 KiB of 128 channels' keys and values are a tile: one of keys and two of values are at work, the others under
/// way.
///
/// H200, 8 key heads, 131072 tokens of 128 channels, 268 MB: 76.2 us; 64 sequences of 4096: 137. Of the former 3.4 are
/// the launch, 1.6 to 4 pass before a block has its first tile, multiprocessors are done 45 to 69 us after it began
/// (62 in the mean: they do not get the same share of bandwidth), and 4 are the joining of shares, of which 0.7 until
/// its blocks go on. Tiles of a head's shares in turn: 77; 2 stages: 77; tiles that are the first to leave L2: 77.
/// 64 channels: 6 stages and 2 blocks 48.1, 4 and 3 48.6.
template <int Channels>
struct few_queries_tuning {
  using policy_type = few_queries_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 128 ? policy_type{3, 1} : Channels > 64 ? policy_type{3, 2} : policy_type{6, 2};
  }
};

}  // namespace v0
}  // namespace tessera
