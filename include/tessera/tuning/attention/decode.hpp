// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Warps, pipeline stages and splits for the programs of attention of a few queries, over keys of 16 bits and over the
/// compressed keys of pages, with the measurements that chose them.
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of dense_decode (program/attention/decode_dense.cuh).
struct dense_decode_policy {
  int tokens;  ///< tokens of a step: keys and values that a warp takes at a time; a multiple of 16
  int warps;   ///< consumer warps of a thread block
  int stages;  ///< pipeline stages of a thread block, each a step; a multiple of the warps
  int blocks;  ///< thread blocks of a multiprocessor

  friend constexpr bool operator==(dense_decode_policy const&, dense_decode_policy const&) = default;
};

/// The costs by which keys are split among thread blocks, in nanoseconds.
struct decode_split_policy {
  int step;     ///< cost of a step or page of each warp of a block
  int work;     ///< cost of the end of a work item
  int merging;  ///< cost of merging splits, by another launch

  friend constexpr bool operator==(decode_split_policy const&, decode_split_policy const&) = default;
};

/// The costs of splits. Without TMA a work item begins with reads of its queries that nothing has begun ahead.
struct decode_split_tuning {
  using policy_type = decode_split_policy;
  TESSERA_FN constexpr policy_type operator()(int architecture) const {
    return {2300, architecture < 900 ? 2000 : 1000, 2500};
  }
};

/// The policy of dense_decode, and without TMA of dense_decode_by_warps, for `Channels` channels: steps of 16 KiB, keys
/// and values together.
///
/// sm_80's code on an H200, us (part of the rate of a kernel that only reads), by tokens, warps, stages and blocks: 64
/// sequences of 4096 tokens of 32 key heads, and sequences of 8 key heads with 4 query heads each. The first line of
/// each is the policy below. Numbers in brackets are with the keys split for two blocks of a multiprocessor in place of
/// one, so that merging takes longer, or is needed at all. The portable program takes 9131 (.10) and 4181 us (.03) for
/// the first and the last column, and dense_decode of sm_90, with TMA, 1042 (.88), 71.0 and 42.7 for the first three:
///
///     128 channels     64 x 4K     16 x 4K            1 x 32K         1 x 128K
///     32, 4, 4, 2      930 (.99)   67.0 (.86) [75]    41.3 [40.5]     127 (.91) [129]
///     16, 4, 8, 2      932         67.3 [75]          41.5 [40.9]     [129]
///     16, 4, 4, 2      931         74.4 [76]          44.1 [41.2]     [127]
///     16, 4, 4, 3      973         [77]               [41.7]          [132]
///     16, 8, 8, 1      957         67.7               41.3            [135]
///     32, 2, 4, 2      954         [77]               [42.0]          [132]
///      64 channels                 16 x 4K                            1 x 128K
///     32, 4, 8, 2                  37.3 (.77) [42.6]                  70.2 (.82) [70.6]
///     32, 4, 4, 2                  40.9 [41.8]                        76.6 [68.9]
///     64, 4, 4, 2                  [43.7]                             [71.2]
///      256 channels
///     16, 4, 4, 2                  126 (.91) [140]                    [244 (.94)]
///
/// Sequences in blocks of 64 tokens, in any order, take as long as whole ones.
template <int Channels>
struct dense_decode_tuning {
  using policy_type = dense_decode_policy;
  TESSERA_FN constexpr policy_type operator()(int architecture) const {
    if (architecture < 900) {
      return Channels > 128  ? policy_type{16, 4, 4, 2}
             : Channels > 64 ? policy_type{32, 4, 4, 2}
                             : policy_type{32, 4, 8, 2};
    }
    return Channels > 128  ? policy_type{16, 5, 10, 1}
           : Channels > 64 ? policy_type{32, 4, 12, 1}
                           : policy_type{64, 4, 12, 1};
  }
};

/// The policy of program/paged_cache/attend_pages.cuh and attend_pages_by_warps.cuh.
struct page_decode_policy {
  int warps;   ///< warps of a thread block that multiply
  int stages;  ///< pipeline stages of a thread block, each a page; a multiple of the warps
  int blocks;  ///< thread blocks of a multiprocessor

  friend constexpr bool operator==(page_decode_policy const&, page_decode_policy const&) = default;
};

/// The policy for pages of `Channels` channels and codes of `Bits` bits. Each warp works on a page while another is
/// being loaded for it; the longest pages have only one stage for each warp.
///
/// H200, us, for three cases: 64 sequences of 4096 tokens of 32 key heads, 4 bits; 16 such sequences of 8 key heads;
/// one sequence of 32768 tokens of 8 key heads. This policy: 321, 31.1, 23.3; 2 blocks of 4 warps: 321, 30.9, 23.3;
/// halves of pages, one each for 14 or 12 warps: 348, 33 and 25, because half a page takes two thirds of a page's
/// instructions. Of the 23.3 us the launch takes 3.3, 3.2 pass before the first page is loaded, the last pages are done
/// after 11 to 15.5, and merging the splits takes 3.6.
///
/// Without TMA (attend_pages_by_warps.cuh) a block has at most 99 KiB of shared memory, for multiprocessors with 100
/// KiB. sm_80's code on an H200, us, for the first of these cases, as warps, stages and blocks; as many stages as
/// there are warps mean that no page is loaded while a warp multiplies:
///
///     4, 8, 2   322        8, 16, 1   344        3, 6, 2   370        4, 8, 1   440
///     2, 4, 4   323        4, 4, 3    350        2, 6, 3   382
///
/// The other cases take 40.4 and 26.0, among others since no launch begins while the one before it ends. 2, 4, 4 would
/// have three blocks on a multiprocessor of an A100, where the first has one.
template <int Channels, int Bits = 4>
struct page_decode_tuning {
  using policy_type = page_decode_policy;
  TESSERA_FN constexpr policy_type operator()(int architecture) const {
    constexpr int bits = Channels * Bits;  // bits of a token's key
    if (architecture < 900 || architecture >= 1000) {
      return Channels > 128 ? policy_type{2, bits > 1024 ? 2 : 4, 2} : policy_type{4, bits > 512 ? 4 : 8, 2};
    }
    return Channels <= 128 && bits <= 512 ? policy_type{8, 16, 1} : policy_type{4, bits > 1024 ? 4 : 8, 1};
  }
};

}  // namespace v0
}  // namespace tessera
