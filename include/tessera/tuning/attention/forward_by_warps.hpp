// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How many rows a warp of forward_by_warps (program/attention/forward_by_warps.cuh) has, with the measurements that
/// chose it and the rest of that program.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of forward_by_warps.
struct forward_by_warps_policy {
  int sets;  ///< sets of 16 rows of a warp with 128 channels, 1 or 2; with 64 channels there is one, of 32 rows

  friend constexpr bool operator==(forward_by_warps_policy const&, forward_by_warps_policy const&) = default;
};

/// The policy for calls with 128 channels: two sets where many keys hide what a block of 256 rows takes at its
/// beginning and end, where no diagonal cuts blocks, and where there are enough blocks.
///
/// sm_80's code on an H200, TFLOP/s over codes, sets in turns on one card (causal):
///
///     128 channels                                   16K          4K
///     one set                                        361 (344)    300 (232)
///     one set, references in shared memory           -   (338)    296 (229)
///     two sets                                       378 (336)
///     two sets, references in registers              373 (334)    288 (211)
///     the same, keys copied late                     374 (336)
///     two sets, keys copied late                     367 (327)
///     two sets, sums of weights in shared memory     378 (336)
///      64 channels, 16K
///     one set of 32 rows                             353 (314)
///     references in registers                        348 (310)
///     sums of weights in shared memory               337 (303)
///
/// For 8 heads of 32K tokens two sets have 397, one 372. Two sets keep 71 words a lane in memory at times (284 bytes),
/// most of them where tiles are masked.
///
/// FlashAttention-2 had 350 and 313 there, attention_tiles 225 and 183. A tile of 16 rows, 128 keys and 128 channels
/// has 950 instructions of a warp, 200 of them products, which take 6.1 cycles each, and 100 loads of four matrices
/// from shared memory: at 362 TFLOP/s tensor cores are busy for 0.42 of the time. By ncu (a form that had 359) warps
/// wait for fixed latencies for 0.27 of it, for tensor cores and for shared memory for 0.17 each: the two warps of a
/// scheduler do not hide that. Tried with 128 channels: 12 warps of 168 registers, 321 (none is left to load operands
/// ahead); a reference for 64 keys, 32 rows a warp, 355, but other weights than elsewhere; 32 rows a warp that
/// multiply half of the keys twice, 353 to 358 (464 products in place of 400); the next tile's scores before the
/// values are multiplied, with its softmax between their products, 350; values multiplied a sync later by half of the
/// warps, so that both warps of a scheduler are in different phases, with three stages of values, 358 for 360. With 64
/// channels 16 rows a warp, 16 warps, 305, and 8 warps, 322. What scales a warp has is asked of one register a lane:
/// four reads from shared memory at the beginning of a tile cost 7 %.
struct forward_by_warps_tuning {
  using policy_type = forward_by_warps_policy;
  static constexpr std::int64_t most_rows = 256;     ///< queries of a thread block with two sets
  static constexpr std::int64_t fewest_keys = 8192;  ///< with 4096 two sets are 4 % slower than one
  static constexpr std::int64_t blocks_each = 7;     ///< blocks of most_rows for each multiprocessor, at least

  /// `rows`: queries of all heads and sequences.
  TESSERA_FN constexpr policy_type operator()(std::int64_t rows, std::int64_t keys, bool has_window,
                                              std::int64_t multiprocessors) const {
    bool const is_long = keys >= fewest_keys && rows >= blocks_each * most_rows * multiprocessors;
    return {is_long && !has_window ? 2 : 1};
  }
};

}  // namespace v0
}  // namespace tessera
