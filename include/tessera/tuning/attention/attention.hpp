// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the program of algorithm/attention/attention.hpp for sm_90a is laid out.
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
/// heads of 4096 and 2 x 16 of 16384 tokens of 128 channels, twice as many of 64, 16 of 256. Columns of one run on one
/// card, softmaxes and layouts in turn; between runs the same program moves by up to 5 %:
///
///     128 channels                               4K     16K   causal 4K    16K
///     this, piecewise_linear_softmax            1042   1135         878   1085
///     this, online_softmax                       865    916         753    888
///      64 channels, 16K                                 full            causal
///     this, piecewise_linear_softmax                     878              842
///     the first tile's code not apart                    832              792
///     this, online_softmax                               660              639
///      256 channels, 16K
///     this, piecewise_linear_softmax                    1227             1190
///     this, online_softmax                              1054             1025
///
/// Of ways to make codes of scores, 128 channels, 4K and 16K tokens, before NaNs and large scales were looked after:
/// conversions to bytes with saturation (F2IP, half an instruction a score) 1001 and 1148, products undivided 1031 and
/// 1179; to bf16 around 128, whose mantissa is the code, with a maximum of pairs 935 and 1058; scores cut off below
/// before, so that a byte of the sum is the code, 911 and 1023; scores converted by I2F 997 and 1126; sums of products
/// beginning at 1.5 * 2^23 990 and 1108 (56 bytes left in memory); exponentials 835 and 932. So fewer instructions of
/// one kind are not faster where they take the pipe of maxima. A warp's samples with the first: 34 % waiting for
/// tensor cores, 16 % issuing, 16 % held back by the register file's ports, 13 % by other warps, 9 % by latencies;
/// tensor cores are busy in 62 % of cycles, schedulers issue in 47 %. In a long run the clock drops for power, to
/// about 1.7 GHz.
///
/// With a branch for large scales in each tile it takes 2 % more at 128 channels and 3 % more at 64 (of the time with
/// exponentials, in two runs): so blocks of queries with large scales take a way of their own. Products of 64 of 128
/// channels at a time are 4 % slower than undivided ones, 3 warpgroups for 64 channels 5 % slower than 4. Earlier,
/// with exponentials: products overlapped with the softmax of one warpgroup (2 warpgroups of 240 registers) 0.90 of
/// this, a cluster of two that shares keys 0.97, 3 stages 0.96.
///
/// Programs of 64 and 128 channels leave some registers in memory for a part of a tile (ptxas: 216 and 48 bytes, most
/// of them where tiles are masked).
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
