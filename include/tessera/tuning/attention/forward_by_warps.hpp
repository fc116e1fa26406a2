// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How many rows a warp of forward_by_warps (program/attention/forward_by_warps.cuh) has, with the measurements that
/// chose it and the rest of that program.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/view/attention_shape.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of forward_by_warps.
struct forward_by_warps_policy {
  int sets;  ///< sets of 16 rows of a warp with 128 channels, 1 or 2; with 64 channels there is one, of 32 rows

  friend constexpr bool operator==(forward_by_warps_policy const&, forward_by_warps_policy const&) = default;
};

/// The policy for calls with 128 channels: two sets where many keys hide what a block of 256 rows takes at its
/// beginning and end, where no diagonal cuts blocks, and where the blocks are filled and enough.
///
/// sm_80's code on an H200, TFLOP/s over codes (causal), from several runs; the numbers of a row but those of 2 x 16
/// heads and of 32K are from one run, and between runs the same program varies by 1 %:
///
///     128 channels                                 one set      two sets
///     4K                                           299 (230)    292 (210)
///     8K                                           341 (293)    345 (279)
///     16K, 2 x 16 heads                            361 (344)    378 (336)
///     16K, 16 heads; 8; 4                          364; 362; 360    378; 375; 376
///     1024 queries of 16K keys; 4096; 4097         357; 363; 347    369; 369; 334
///     16K and one query                            360 (327)    365 (297)
///     32K, 8 heads                                 372          397
///
///     16K                                          128 channels, two sets    64 channels, one set of 32 rows
///     this, references in shared memory            378 (336)                 353 (314)
///     references in registers                      373 (334)                 348 (310)
///     the same, keys copied late                   374 (336)                 (this)
///     keys copied late                             367 (327)                 (this)
///     sums of weights in shared memory             378 (336)                 337 (303)
///
/// One set of 128 channels has 338 (causal; 16K) and 296 (4K) with references in shared memory, with them in registers
/// in the same run 340 and 300. ptxas, bytes of stack in the plain and the longer way together: two sets 144 on sm_80,
/// 128 on sm_86 and 89, 216 on sm_90, 280 on sm_120; 64 channels 168 to 176, on sm_90 160, on sm_120 280; one set of
/// 128 channels none.
///
/// With terms (program/attention/detail/warp_terms.cuh), 16K tokens over codes, each in turns with attention_tiles, in
/// another run (causal):
///
///                                 128 channels     attention_tiles    64 channels      attention_tiles
///     none                        378 (340)        237 (225)          350 (313)        186 (178)
///     smoothed queries            340 (298)        202 (191)          314 (281)        167 (159)
///     INT4 codes in bytes, same   339 (298)        202 (191)          314 (281)        166 (159)
///     a linear bias               358 (328)        91 (89)            334 (300)        57 (56)
///     both                        302 (297)        89 (87)            300 (270)        56 (55)
///     a bias by a function        252 (243)        84 (83)            180 (158)        54 (53)
///     a dense bias in bf16        174 (169)        45 (44)            127 (119)        27 (26)
///
/// These were taken while warps had a sync a tile, and with biases of functions one set.
///
/// A plain tile of one set of 128 channels has 998 instructions without terms, 1095 with smoothed queries, 1035 with
/// these and INT4 codes in pairs, 32 instead of 64 of them integer products (sm_80; ptxas emulates the product of pairs
/// for sm_90, where it has 67 TFLOP/s). ptxas, bytes of stack on sm_80 with smoothed queries: one set of 128 channels
/// none, two sets 152, with pairs 208; 64 channels 96, with pairs 72.
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
  static constexpr std::int64_t fewest_keys = 8192;     ///< of 4096 two sets take 2.5 % longer than one
  static constexpr std::int64_t fewest_queries = 1024;  ///< of a sequence; fewer were not measured
  static constexpr std::int64_t any_queries = 16384;    ///< from here on a block that is half empty costs little
  static constexpr std::int64_t rows_each = 480;        ///< queries of all heads for each multiprocessor, at least

  /// has_window: whether a query does not see all keys of its sequence.
  TESSERA_FN constexpr policy_type operator()(attention_shape const& shape, bool has_window,
                                              std::int64_t multiprocessors) const {
    std::int64_t const rows = shape.batch * shape.query_heads * shape.queries;
    bool const is_long = shape.keys >= fewest_keys && shape.queries >= fewest_queries;
    bool const is_filled = shape.queries >= any_queries || divide_up(shape.queries, std::int64_t{128}) % 2 == 0;
    return {is_long && is_filled && rows >= rows_each * multiprocessors && !has_window ? 2 : 1};
  }
};

}  // namespace v0
}  // namespace tessera
