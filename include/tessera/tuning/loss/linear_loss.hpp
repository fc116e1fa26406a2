// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tile sizes, pipeline stages and parts of the vocabulary for the programs of algorithm/loss/linear_loss.hpp on sm_90a
/// and on sm_80 and later, with the measurements that chose them.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of the forward pass, which is the ping-pong kernel gemm_pingpong. `band` is not used: a row_schedule
/// walks the rows.
///
/// H200 at its power limit, bf16, 8192 tokens, medians in ms of runs that alternated between all variants, beside
/// linear's product of the same extents and cuBLAS's (its default / the faster of its first two proposals):
///
///     V, D             128 x 256 by both warpgroups   the same, with what is below   in turns   linear   cuBLAS
///     256000, 2304     16.73                          14.7 to 15.0                   13.84      14.15    14.77 / 14.61
///     128256, 4096     14.30                          12.9 to 13.5                   12.56      12.84    13.20 / 13.04
///     256000, softcap  25.91                          15.7                           13.88      13.98    14.71 / 14.68
///
/// Tensor cores are busy for 97.6 % of the time (81 % before; linear 95 to 97 %), at 1.47 GHz, the clock that the power
/// limit leaves. The gains, in the order of the columns: all 66 clusters instead of 64 (tails of row_schedule), 3 to 4
/// %; an epilogue with 4 instructions for a sum instead of about 10, 4 to 5 %; tiles in turns (ping-pong), 6 %.
///
/// Two changes did not help. With one warpgroup 1, 2 or 3 of the 4 pipeline stages ahead of the other, so that their
/// epilogues do not meet, the pass is 0 to 4 % slower, because loads come too late. Bands of 8 to 16 rows of tiles are
/// 0 to 3 % slower.
///
/// Where softmaxes are kept, V 128256 took 12.87 ms in turns of single calls, and 12.9 to 13.0 where L2 evicts hidden
/// states last, the classifier first, or both, where each second tile begins at its last channel, or with up to 20 or
/// 24 states of a row; in clusters of four, of which an H200 runs 30, 14.2; cuBLAS's logits 12.81. In blocks of calls
/// of one program, which has the clock of its own power then (two blocks each): 13.6, 13.3 with hidden states evicted
/// last, 14.2 with both, and cuBLAS 12.5.
///
/// Marks for the backward pass take 1 to 2 % more time, mostly for the launches between which bounds are shared (a
/// single launch takes 0 to 1 % more, and sets two to four times as many marks). The part of the entries that is
/// marked, for threshold 2^-12 and blocks of 128 tokens, and in brackets the part that must be:
///
///     logits                                            V 256000           V 128256
///     N(0, 1)                                           0.7 % (0.02 %)     2.7 % (0.5 %)
///     1.5 N(0, 1) - 1.2 ln(rank), ranks at random       4.8 % (1.4 %)      9.0 % (2.8 %)
///     the same with rank = entry + 1                    2.6 % (1.4 %)      5.2 % (2.8 %)
struct warpgroup_loss_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {192, 2, 5, 8, 24, 240}; }

  static constexpr int fewest_stages = 3;  ///< with fewer pipeline stages the portable program runs
  /// The policy with as many pipeline stages as fit beside the memory of a block's 256 rows, `row_bytes` each.
  TESSERA_FN constexpr policy_type beside(int row_bytes) const {
    constexpr int room = 226 * 1024 - 128;  // a multiple of 1024 that leaves 1 KiB to the executor, less barriers
    policy_type policy = (*this)(900);
    int const left = max(room - 256 * row_bytes, 0);
    policy.stages = min(policy.stages, left / (128 * (128 + policy.columns)));
    return policy;
  }
};

/// The policy of the backward pass's gradient by the logits, made by the ping-pong kernel gemm_pingpong in bands of
/// rows of tiles.
///
/// H200 at its power limit, bf16, 8192 tokens, exact, sum over all parts in ms, V 256000, D 2304: 128 x 256 by both
/// warpgroups, written while the next tile is multiplied, 20.2; ping-pong 18.4 to 19.3; ping-pong with labels
/// differentiated one by one, so that tiles with a label take the same short program as others, 14.7 (before, the
/// slowest cluster took half as long again as the fastest, for want of instructions in the cache). V 128256, D 4096:
/// 16.9, 15.1, 13.7. Tensor cores are busy for 93 % of a launch. Bands of 32 are 2 % slower for both passes.
struct warpgroup_loss_gradient_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {192, 2, 4, 8, 24, 240}; }
};

/// The policy of the backward pass's products with the gradient by the logits, whose channels are walked in bands of
/// tiles.
///
/// H200 at its power limit, bf16, 8192 tokens, exact, sum over all parts in ms, V 256000, D 2304: 256 x 256 by both
/// warpgroups, with fp32 sums of earlier parts loaded ahead, 31.6; 256 x 192 ping-pong 32.0; the same with parts of
/// 6912 entries instead of 7552, 29.9. V 128256, D 4096: 29.4; 28.8; 28.1 (3 % of which is the last tile of channels,
/// two thirds of which do not exist). Tensor cores are busy for 91 % of a launch, at the clock that the power limit
/// leaves. All channels together instead of bands of 6 or 8 take the same time, and 1 % more at D 4096.
struct warpgroup_loss_product_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {192, 2, 5, 8, 24, 240}; }
};

/// The policy of the same products by tiles of 256 channels, which both warpgroups multiply together. Where they are
/// taken, see multiplies_widely (part_costs.hpp). All channels of up to 4096 are walked together.
///
/// H200 at its power limit, bf16, 8192 tokens, medians of 18 calls in ms, in an order that rotates so that all follow
/// each other, both passes (the backward pass): with softmaxes kept in 4 GiB, and with parts in 160 MiB, where sums of
/// hidden states are short.
///
///     tiles, band          192, 8          256, 4          256, 8          256, 9 or 16    cuBLAS, 3 products
///     128256, 4096   40.63 (27.34)   40.59 (26.85)   40.70 (26.93)   40.41 (26.87)   40.31
///     256000, 2304   44.70 (29.63)   --              46.22 (30.26)   44.48 (29.36)   43.81
///     in 160 MiB     53.91 (41.50)   --              57.01 (44.43)   --              50.76, 4 products, 128256
///                    59.85 (45.81)   --              64.15 (49.98)   --              56.20, 4 products, 256000
///
/// Means of both passes of the first are 41.18, 40.32, 40.33, 40.64 and 39.88: a card's clock moves by 3 % meanwhile.
/// Where each variant always had the same place in the order, its backward pass took 27.06, 25.48, 26.28 and 25.48.
///
/// Power bounds these products, at 690 W: of 32.4e6 cycles 31.8e6 are those of the multiplications, at 1.2 to 1.3 GHz
/// by clocks of multiprocessors; with zeros for the gradient they take 20.4 ms, at 1.6 GHz. Calls in turns share the
/// clock that all of them leave each other, so that their cycles count and not their energy. A block of calls of one
/// program, its first fifth of a second aside, has the program's own clock. Medians in ms of both products, 128256 x
/// 4096, in turns of single calls (9 rounds) and in blocks (3; those of one program differ by up to 5 %):
///
///                                                                        in turns   in blocks
///     this policy                                                           25.03       26.21
///     cuBLAS                                                                25.80       24.95
///     a copy of this whose blocks share whole boxes, not halves             25.57       26.62
///         each second tile of the classifier from its last token on         25.03       25.89
///         also lines of the gradient that L2 evicts first                   25.80       26.57
///         also bands of 8                                                   25.76       26.21
///         also clusters of four, two by two                                 27.69       27.20
///         also clusters of eight, four by two                               27.66       26.90
///     the copy with sums transposed: channels are rows                      25.28       25.93
///     the copy with blocks side by side, which share the gradient           25.23       27.61
///
/// An H200 runs 30 clusters of four and 15 of eight, and 12 of its multiprocessors are idle then, which is 10 % more
/// cycles. Both passes by the library took 39.9 ms in blocks, cuBLAS's products 37.5; with every second tile from the
/// last token on and lines evicted first, which is not in the code, 41.0.
struct wide_warpgroup_loss_product_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {256, 2, 4, 16, 24, 240}; }
};

/// The policy of the backward pass whose parts are small, by one launch for all of them (gradient_parts.cuh). `band` is
/// not used: rows of tiles are taken as they lie.
///
/// H200 at its power limit, bf16, 8192 tokens, gradients in fp32, 10 MiB, in turns with calls of 160 MiB, in ms, in
/// one run with two launches a part, as before:
///
///                      two launches a part   one launch for all      160 MiB
///     V, D               backward     both   backward     both          both
///     256000, 2304           65.6     79.6       53.3     67.6   56.1 to 59.1
///     128256, 4096           54.0     66.9       48.9     61.7   53.7 to 54.6
///
/// and 45.2 for the backward pass of the second with parts of 2048 x 2048, as they are chosen since. Beside cuBLAS's
/// products, in other runs, both passes take 68.3 and 58.5 (77.9 and 65.3 before), 1.17 and 1.09 of 160 MiB's.
///
/// A part of the first took 120 us, for 20 of which clusters were idle, and takes 107: 162 steps of 0.65 us. By count
/// 141 are those of its tiles, 17 of their epilogues, and for 4 rows of the gradient are awaited, of which waiting for
/// one tile of a row after the other would save half. The loops over stages read one spilled register each.
struct warpgroup_loss_parts_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {192, 2, 5, 8, 24, 240}; }
};

/// Bytes of shared memory of gemm_ring by a policy, where an epilogue keeps so many bytes of each row of each warp's:
/// its stages, these rows, and two barriers a stage.
constexpr int loss_ring_bytes(gemm_ring_policy policy, int row_bytes) {
  int const warp_columns = policy.columns / 64;  // warps that share a row
  return policy.stages * ((policy.rows + policy.columns) * policy.bytes + 16) + policy.rows * warp_columns * row_bytes;
}

/// The policy of gemm_ring and gradient_ring in both passes, from sm_80 on, where an epilogue keeps so many bytes of
/// each row of each warp's 64: one thread block has a multiprocessor for itself where two have no room; no stages if
/// shared memory of 100 KiB, as sm_86 has, has none for one. Shared memory is taken in whole KiB.
///
/// sm_80's code on an H200, bf16, 8192 tokens, V 256000, D 2304, TFLOP/s of the forward pass and of both, before warps
/// waited by barriers 358 and 358, since then 376 and 355; V 128256, D 4096: 361 and 364, 391 and 362, in turns in one
/// run: the backward pass alone takes 1 to 2 % longer. All of them are at the limit of the card's power; the portable
/// program has 44 and 30.
///
/// With all softmaxes kept in 4 GiB, ms of the forward pass, the backward pass and both, medians of seven in turns in
/// one process: first the tiles of the classifier, or those with the longer sums, of hidden states, with the others
/// spread so that workers end together, by which Gemma's workers have 34.9k steps of tiles at most and not 37.5k.
///
///                            150 MiB               4 GiB, classifier first   4 GiB, longer sums first
///     V 256000, D 2304   24.9   80.1   105.1     28.9   49.4   78.2       29.1   48.4   77.5
///     V 128256, D 4096   21.2   69.4    90.8     24.0   43.6   67.3       24.0   44.1   67.8
///
/// The second has 7.8 turns of the longer sums, and so hardly anything to gain; forward passes of the same code differ
/// by 1 %, too.
constexpr gemm_ring_policy loss_ring_policy(int row_bytes) {
  gemm_ring_policy policy = gemm_ring_tuning{}(800);
  int const bytes = loss_ring_bytes(policy, row_bytes);
  policy.blocks = bytes <= 80 * 1024 ? policy.blocks : 1;
  policy.stages = bytes <= 98 * 1024 ? policy.stages : 0;
  return policy;
}

/// The policy of the forward pass on devices on which a thread block may have the shared memory of 128 x 256 sums; no
/// stages where no device has it.
///
/// In that run 394 and 366 with V 256000, 402 and 371 with V 128256; with four stages 393 and 365, 404 and 371. In
/// another one 409 and 372, 413 and 377, where the program before had 367 and 364, 370 and 371.
constexpr gemm_ring_policy wide_loss_ring_policy(int row_bytes) {
  gemm_ring_policy policy = wide_gemm_ring_tuning{}(800);
  policy.stages = loss_ring_bytes(policy, row_bytes) <= 224 * 1024 ? policy.stages : 0;
  return policy;
}

/// How many states a row may have in the forward pass where it keeps softmaxes: on sm_90a so many that row_schedule
/// walks 32 rows of tiles in three bands (13 or 12 splits, and 2 of tails), not in one. Writing softmaxes drives hidden
/// states out of L2, unless the pass walks through fewer at a time.
///
/// H200, bf16, 8192 tokens, both passes with all softmaxes kept, in ms, in one run: V 256000, D 2304, with 1, 3 and 6
/// bands: 44.3, 43.8, 43.9; V 128256, D 4096, with 1, 3 and 4 bands: 40.0, 39.4, 39.5. In another run 44.3 and 39.3
/// with 3. ncu counts 25.8 GB read from memory with one band, 20.6 GB of a pass that writes nothing.
inline constexpr std::int64_t most_states_with_softmaxes = 15;

/// Multiprocessors that the backward pass leaves to the reduction of hidden states' gradients over ranks beside it: as
/// many as NCCL's rings have channels on two H200, each a thread block with a multiprocessor of its own.
///
/// Two H200 over NVLink, bf16, 8192 tokens, half of the vocabulary each, both passes in ms, in turns that begin
/// together: V 256000, D 2304: a GPU alone 30.5, reduced in the end 30.8, beside products with 16, 24 and 32 spared
/// 31.2, 30.9 and 30.9; V 128256, D 4096: 27.8, 28.5, and 28.1, 28.0 and 28.2. Turns differ by 0.3, since clocks do.
inline constexpr int rank_reduction_multiprocessors = 24;

/// How many tokens' gradients of hidden states ranks add up together, `row_bytes` each: a quarter, or as many as make
/// 4 MiB, in multiples of the rows of tiles.
[[nodiscard]] constexpr std::int64_t rank_reduction_chunk(std::int64_t tokens, std::int64_t row_bytes) {
  constexpr std::int64_t rows = 256;
  constexpr std::int64_t least_bytes = std::int64_t{4} << 20;
  std::int64_t const least = divide_up(least_bytes, max(row_bytes, std::int64_t{1}));
  return divide_up(max(divide_up(tokens, std::int64_t{4}), least), rows) * rows;
}

/// How many rows of a classifier that is a source are in memory at a time, `row_bytes` each: as many as 56 MiB have
/// room for, or a quarter of the budget, where there is one.
///
/// Workers end their turns together where a band has 33 tiles of 192 entries for 32 rows of tiles (4 splits of 8, and 4
/// workers that take the last tile of each row), or 66: 56 MiB have 66 for D 2304 and 33 for D 4096 in 16 bits. H200,
/// 8192 tokens, bf16 hidden states, with 48 MiB (45 and 32 tiles), both passes in ms, in turns with a classifier in
/// bf16: V 256000, D 2304: 61.3 for fp32 rows, 61.6 for fp8 rows, 58.9 for bf16; V 128256, D 4096: 56.1, 55.9, 53.4.
/// Of the forward pass, 15.3 in place of 13.9 at D 2304, making all rows takes 1.0 (3.6 TB/s), that of fp8 0.8.
[[nodiscard]] constexpr std::int64_t loss_band_entries(std::int64_t vocabulary, std::int64_t row_bytes,
                                                       std::int64_t budget) {
  constexpr std::int64_t usual = std::int64_t{56} << 20;
  constexpr std::int64_t least = 256;  // has a tile of each kind
  constexpr std::int64_t step = 128;   // whole tiles of programs for parts
  std::int64_t const bytes = budget > 0 ? min(usual, budget / 4) : usual;
  std::int64_t const rows = bytes / max(row_bytes, std::int64_t{1}) / step * step;
  return clamp(rows, least, divide_up(vocabulary, least) * least);
}

}  // namespace v0
}  // namespace tessera
