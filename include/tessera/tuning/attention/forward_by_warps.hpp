// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How many rows a warp of forward_by_warps (program/attention/forward_by_warps.cuh) has, and how many warps a thread
/// block, with the measurements that chose them and the rest of that program.
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
  /// Whether rows of keys and values in shared memory lie one behind the other, not 16 bytes further apart.
  bool are_swizzled = false;
  int warps_of_64 = 4;  ///< warps of a thread block with 64 channels, 4 or 8; with 128 channels there are 8

  friend constexpr bool operator==(forward_by_warps_policy const&, forward_by_warps_policy const&) = default;
};

/// The policy for calls with 128 channels: two sets where many keys hide what a block of 256 rows takes at its
/// beginning and end, where no diagonal cuts blocks, and where the blocks are filled and enough.
///
/// sm_80's code on an H200, TFLOP/s over codes (causal), where values are widened once, that included, and where each
/// thread block widens them; before, with a sync of all warps for each tile. Numbers are from one run; calls of inputs
/// in bf16 have 2 % less.
///
///     128 channels                    widened once                 by blocks                    with syncs
///                                     one set      two sets        one set      two sets        one set      two sets
///     4K, 8 x 16 heads                342 (263)    335 (240)       324 (257)    336 (237)       315 (254)    318 (236)
///     8K, 2 x 16 heads                387          391             357          387             343          360
///     16K, 2 x 16 heads               417 (392)    427 (383)       380 (361)    415 (365)       364 (349)    389 (351)
///     32K, 8 heads                    (422)        (442)           (385)        (405)           (368)        (399)
///     64 channels, 16K, 2 x 32 heads  379 (340)                    362 (328)                    359 (323)
///
///     with syncs, 128 channels                     one set      two sets
///     16K, 16 heads; 8; 4                          364; 362; 360    378; 375; 376
///     1024 queries of 16K keys; 4096; 4097         357; 363; 347    369; 369; 334
///     16K and one query                            360 (327)    365 (297)
///
///     with syncs, 16K                              128 channels, two sets    64 channels, one set of 32 rows
///     references in shared memory                  378 (336)                 353 (314)
///     references in registers                      373 (334)                 348 (310)
///     the same, keys copied late                   374 (336)                 (this)
///     keys copied late                             367 (327)                 (this)
///     sums of weights in shared memory             378 (336)                 337 (303)
///
/// FlashAttention-2 had 350 and 313 there, attention_tiles 225 and 183.
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
/// These were taken with syncs and codes that blocks widen, those of functions with one set.
///
/// A plain tile of one set of 128 channels has some 960 instructions without terms, 1050 with smoothed queries, 1000
/// with these and INT4 codes in pairs, where values are widened once, and 130 more where blocks widen them. Pairs take
/// 32 instead of 64 integer products (sm_80; ptxas emulates the product of pairs for sm_90, where it has 67 TFLOP/s).
/// ptxas, bytes of stack on sm_80, values widened once: two sets 128 without terms, 64 channels 64, one set of 128
/// channels none. Before the loop over tiles was that of a refilling_reader: two sets 336, 392 with smoothed queries,
/// 344 with these and pairs; 64 channels 160, 176 and 152.
///
/// One set of 128 channels, values widened once, has queries in registers (program/attention/detail/warp_queries.cuh).
/// sm_80's code on an H200 in turns with queries in shared memory, TFLOP/s over codes (causal), one run of the program
/// alone: 4 heads of 16K tokens 409 (379) for 406 (377), 2 x 8 heads of 4K 324 (209) for 322 (208), with the same bits.
/// It has 105.6 KiB of shared memory in place of 123.6, INT4 codes in pairs 90.6 in place of 100.5, and with a
/// linear_bias 8 bytes of stack on sm_80, which no loop reads.
///
/// On sm_86, whose thread blocks have 99 KiB, codes in bytes have that program in rows without gaps
/// (tile/cuda/sm_80/swizzled_rows.cuh): 97.5 KiB, 98.6 with smoothed queries. Loads from shared memory have as few
/// conflicts of banks; a plain tile has some 30 instructions more of 1000, for a lane's addresses. ptxas gives it 255
/// registers and no stack, 8 bytes with smoothed queries or a linear_bias, 88 with a function. Values kept as codes
/// would take 74 KiB, but each warp would widen them for itself, by 768 instructions a tile. sm_80's code on an H200
/// has 410 (causal 381) TFLOP/s with 16K tokens of 2 x 16 heads, in turns with 414 (383) in padded rows, and the same
/// bits; padded rows with one stage of values, which need 71.6 KiB, have 334 (320), and attention_tiles, which sm_86
/// had before, 238 (228). Nothing was measured on sm_86. By NVIDIA's figures its tensor cores take 4096 cycles for a
/// tile's products of fp16 with sums in fp32 (8192 on GeForce) and 2048 for those of bytes, while a scheduler has some
/// 2000 other instructions: there tensor cores are the bound, not what this layout adds.
///
/// Of 64 channels, with 66 KiB, a multiprocessor of sm_86 has one thread block of four warps, where sm_80 has two: with
/// one an H200 has 282 (241) TFLOP/s for 376 (332) by sm_80's code, and one of eight warps, 77 KiB, has 382 (331). So
/// sm_86 has that one (warps_of_64) where values are widened once and nothing is added to scores. ptxas gives both 255
/// registers and 56 bytes of stack on sm_86. Smoothed queries have four warps, since 256 rows have two mean queries.
///
/// What bounds it: a product, of fp16 or bytes, takes 6.1 to 6.4 cycles of a scheduler, and other instructions, of its
/// warp or another one, are added to that: 8.6 with two multiply-adds for each product, 12.3 with six, 8.4 with two
/// maxima, and 8.4 with a load of four matrices for two products, where 128 bytes a cycle of shared memory are the
/// bound. A warp alone has a product in 8.2 cycles. So mma.sync hides nothing. For 32 rows, 128 keys and 128 channels a
/// warp has 400 products and some 1120 other instructions, where it widens codes 1260: two warps take 7240 and 7520
/// cycles of their scheduler for them. At 427 TFLOP/s and the 1.7 GHz that clocks of phases say, they take 8800.
///
/// Tried with two sets that widen codes (418): the second half of the warps begins half a tile later, by a barrier 384,
/// by a pause 396, with more registers spilled; codes widened after all products, 406.
///
/// Tried with syncs and 128 channels: 12 warps of 168 registers, 321 (none is left to load operands ahead); a reference
/// for 64 keys, 32 rows a warp, 355, but other weights than elsewhere; 32 rows a warp that multiply half of the keys
/// twice, 353 to 358 (464 products in place of 400); the next tile's scores before the values are multiplied, with its
/// softmax between their products, 350; values multiplied a sync later by half of the warps, so that both warps of a
/// scheduler are in different phases, with three stages of values, 358 for 360. With 64 channels 16 rows a warp, 16
/// warps, 305, and 8 warps, 322. What scales a warp has is asked of one register a lane: four reads from shared memory
/// at the beginning of a tile cost 7 %.
struct forward_by_warps_tuning {
  using policy_type = forward_by_warps_policy;
  static constexpr std::int64_t fewest_keys = 8192;     ///< of 4096 two sets take 2 % longer than one
  static constexpr std::int64_t fewest_queries = 1024;  ///< of a sequence; fewer were not measured
  static constexpr std::int64_t any_queries = 16384;    ///< from here on a block that is half empty costs little
  static constexpr std::int64_t rows_each = 480;        ///< queries of all heads for each multiprocessor, at least
  /// With as much shared memory for a thread block a multiprocessor has room for two of four warps with 64 channels.
  static constexpr std::int64_t two_blocks_of_64 = 134 * 1024;

  /// has_window: whether a query does not see all keys of its sequence.
  TESSERA_FN constexpr policy_type operator()(attention_shape const& shape, bool has_window,
                                              std::int64_t multiprocessors) const {
    std::int64_t const rows = shape.batch * shape.query_heads * shape.queries;
    bool const is_long = shape.keys >= fewest_keys && shape.queries >= fewest_queries;
    bool const is_filled = shape.queries >= any_queries || divide_up(shape.queries, std::int64_t{128}) % 2 == 0;
    return {is_long && is_filled && rows >= rows_each * multiprocessors && !has_window ? 2 : 1};
  }

  /// The warps of a thread block with 64 channels, where one of eight warps fits the `shared_bytes` that a thread block
  /// may have on the device. Eight take 1.5 times as long as four for twice as many rows where a multiprocessor has one
  /// thread block at a time. has_left_end: whether a window ends somewhere before a query, so that 256 queries may see
  /// many more keys together than 128 do.
  [[nodiscard]] TESSERA_FN static constexpr int warps_of_64(attention_shape const& shape, bool has_left_end,
                                                            std::int64_t shared_bytes, std::int64_t multiprocessors) {
    auto const turns = [&](std::int64_t rows) {
      return divide_up(shape.batch * shape.query_heads * divide_up(shape.queries, rows),
                       max(multiprocessors, std::int64_t{1}));
    };
    bool const is_small = shared_bytes < two_blocks_of_64;
    return is_small && !has_left_end && 3 * turns(256) <= 2 * turns(128) ? 8 : 4;
  }
};

}  // namespace v0
}  // namespace tessera
