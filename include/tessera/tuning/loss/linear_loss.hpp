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
///
/// Where softmaxes are kept, D 4096 takes 1.052 times its products by cuBLAS, 2.0 ms more: 0.7 for writing softmaxes in
/// the forward pass, and the rest, by count, for the last tiles of channels. 66 clusters take 3 x 22 tiles, so that the
/// same ones have the last tile in each turn, and a narrower one gains nothing. Tiles of 256 channels x 192 rows would
/// have no rest (16 x 256, 668 x 192), and need epilogues that write sums across.
struct warpgroup_loss_product_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {192, 2, 5, 8, 24, 240}; }
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

/// How many states a row may have in the forward pass on sm_90a where it keeps softmaxes: so many that row_schedule
/// walks 32 rows of tiles in three bands (13 or 12 splits, and 2 of tails), not in one. Writing softmaxes drives hidden
/// states out of L2, unless the pass walks through fewer at a time.
///
/// H200, bf16, 8192 tokens, both passes with all softmaxes kept, in ms, in one run: V 256000, D 2304, with 1, 3 and 6
/// bands: 44.3, 43.8, 43.9; V 128256, D 4096, with 1, 3 and 4 bands: 40.0, 39.4, 39.5. In another run 44.3 and 39.3
/// with 3. ncu counts 25.8 GB read from memory with one band, 20.6 GB of a pass that writes nothing.
inline constexpr std::int64_t most_states_with_softmaxes = 15;

/// The cost model by which a part of the backward pass gets its number of vocabulary entries. Programs for sm_90a
/// compute whole tiles, as many at a time as there are clusters, and the last tiles leave clusters idle. On an H200,
/// 8192 tokens, V 256000, D 2304, exact, both passes take 59.5 ms with parts of 6912 entries, in 152 MiB; with one
/// part, in 4 GiB, 2 % less. The backward pass alone, before parts were chosen by this model, took 54.0 ms with 75
/// parts and 47.9 ms with one: a part costs about 80 us beyond its work.
///
/// With all softmaxes kept by the forward pass (program/loss/kept_softmaxes.hpp) instead of logits made again, both
/// passes took 48.9 ms, and 42.0 in place of 54.0 with V 128256, D 4096, when they became gradients in place: 3.9 ms
/// for 8.4 GB. Multiplied as they are, in turns with the same products by cuBLAS, which take 44.4 and 38.9: 44.3 and
/// 40.0, in three bands 43.8 and 39.4. The forward pass takes 1.4 ms longer for the 4.2 GB that it writes,
/// whether rows or boxes of them lie together; a narrower last tile of 4096 channels, of which 64 are left, gained
/// nothing, since the same workers take all of them; turning the workers' order from turn to turn made the backward
/// pass 3 ms longer.
struct loss_part_costs {
  static constexpr std::int64_t clusters = 66;         ///< clusters of two blocks that an H200 runs at a time
  static constexpr std::int64_t launches = 200 * 192;  ///< what a part's launches cost, in the unit of cost()

  /// The cost of a part for each of its entries, in columns of a tile of 256 rows, multiplied over 64 of the depth.
  [[nodiscard]] static constexpr double cost(std::int64_t tokens, std::int64_t channels, std::int64_t entries) {
    std::int64_t const rows = divide_up(tokens, std::int64_t{256});
    std::int64_t const across = divide_up(channels, std::int64_t{192});
    std::int64_t const tiles = rows * divide_up(entries, std::int64_t{192});
    std::int64_t const panels = divide_up(entries, std::int64_t{256});
    std::int64_t const products = (panels + rows) * across;
    double const k_tiles =
        static_cast<double>(across) *
        static_cast<double>(panels * divide_up(tokens, std::int64_t{64}) + rows * divide_up(entries, std::int64_t{64}));
    double const depth = k_tiles / static_cast<double>(products > 0 ? products : 1);
    double const made = static_cast<double>(divide_up(tiles, clusters)) *
                        static_cast<double>(divide_up(channels, std::int64_t{64}) * 192);
    double const added = static_cast<double>(divide_up(products, clusters) * 192) * depth;
    return (made + added + static_cast<double>(launches)) / static_cast<double>(entries);
  }
};

/// How many tokens and entries a part of the backward pass on sm_90a has, where memory is short.
struct loss_chunk {
  std::int64_t tokens;   ///< all, or a multiple of 256
  std::int64_t entries;  ///< all that there is memory for, or a multiple of 256
};

/// Chooses loss_chunk for memory of `entries` of the vocabulary for each token, where gradients are fp32: few entries
/// of all tokens make few tiles of the classifier, and all tokens' gradients pass through memory with each part.
///
/// H200, bf16, 8192 tokens, 10 MiB, the backward pass in ms, medians of one run in which these alternated, with calls
/// of 160 MiB between them:
///
///     tokens x entries   2048 x 2048   2048 x 1536   1024 x 4096   4096 x 1024
///     V 256000, D 2304         53.35         54.51         57.73         53.89
///     V 128256, D 4096         45.16         48.90         49.67         48.96
///
/// A step, a tile of 256 x 192 over 64 of the depth, takes 0.65 us then. A part costs what its tiles have of them, 4
/// for each epilogue, and 0.6 of what the first row of the gradient by the logits is awaited: `latency` after its tiles
/// have their last step, less the tiles of other rows that clusters have meanwhile. That is what these eight took
/// within 5 %.
///
/// With two launches a part (where a bias's gradient is wanted, or labels are distributions: what loss_gradient_parts
/// does not make) the pass takes 60.0 and 50.6 with 2048 x 2048, and 61.9 and 50.7 with 2048 x 1536. When launches did
/// not overlap, epilogues were unrolled, and the classifier's sums were read, added to and written, it took 66.2 and
/// 57.1. In steps, of parts of 2048 x 2048:
///
///                        before   products get    logits are multiplied while   epilogues are   the classifier's sums
///                                 ready early     products before them end      short loops     are added in memory
///     V 256000, D 2304     66.2           65.2                            63.9            63.4                    60.0
///     V 128256, D 4096     57.1             --                              --            52.6                    50.6
///
/// With unrolled epilogues sums added in memory gained nothing. Two gradients of half the size, so that products of one
/// part and logits of the next overlap on both sides, made the pass longer: 65.4 and 56.1 (2048 x 1024), 66.0 and 56.8
/// (1280 x 1536), since short sums have more epilogues. Storing the gradient so that L2 keeps it made it 1 % longer.
[[nodiscard]] constexpr loss_chunk choose_loss_chunk(std::int64_t tokens, std::int64_t vocabulary,
                                                     std::int64_t channels, std::int64_t entries) {
  constexpr std::int64_t enough = 2048;  // entries with which parts are taken of all tokens
  constexpr double step_bytes = 2.5e6;   // that memory moves in a step, a tile of 256 x 192 over 64 of the depth
  constexpr double epilogue = 4;         // steps
  constexpr double latency = 13;         // steps from a tile's last one until what waits for it may begin
  constexpr double waiting = 0.6;        // the part of the first wait for a row that clusters lose
  constexpr auto clusters = static_cast<double>(loss_part_costs::clusters);
  auto const cost = [&](loss_chunk const& chunk) {
    auto const across = static_cast<double>(divide_up(channels, std::int64_t{192}));
    std::int64_t const rows = divide_up(chunk.tokens, std::int64_t{256});
    std::int64_t const panels = divide_up(chunk.entries, std::int64_t{256});
    std::int64_t const in_row = divide_up(chunk.entries, std::int64_t{192});
    double const steps = static_cast<double>(channels) / 64;
    double const made = static_cast<double>(rows * in_row) / clusters * (steps + epilogue);
    double const added = across / clusters *
                         (static_cast<double>(panels) * (static_cast<double>(chunk.tokens) / 64 + epilogue) +
                          static_cast<double>(rows) * (static_cast<double>(chunk.entries) / 64 + epilogue));
    double const moved = static_cast<double>((chunk.tokens + chunk.entries) * channels * 8) / step_bytes;
    double const behind = static_cast<double>((rows - 1) * in_row) / clusters;  // turns from a row to what needs it
    double const late = steps * (1 - behind) + latency;
    return (made + (added > moved ? added : moved) + waiting * (late > 0 ? late : 0)) /
           static_cast<double>(chunk.tokens * chunk.entries);
  };
  std::int64_t const all_entries = divide_up(vocabulary, std::int64_t{256}) * 256;
  loss_chunk best{tokens, entries};
  for (std::int64_t parts = 2; parts <= 8 && entries < min(enough, vocabulary); parts *= 2) {
    std::int64_t const fewer = divide_up(tokens, parts * 256) * 256;
    if (fewer >= tokens) {
      return best;
    }
    for (std::int64_t some = min(tokens * entries / fewer / 256 * 256, all_entries); some > entries; some -= 256) {
      loss_chunk const tried{fewer, some};
      best = cost(tried) < cost(best) ? tried : best;
    }
  }
  return best;
}

/// The products of the last part of a backward pass on sm_90a, beside a reduction of hidden states' gradients over
/// ranks. Times are in steps of 64 of a tile's depth, of which each takes 0.64 us on an H200.
struct loss_products_beside_reduction {
  std::int64_t classifier_panels;  ///< panels of 256 entries
  std::int64_t hidden_panels;      ///< panels of 256 tokens
  std::int64_t channel_tiles;      ///< tiles of a panel
  std::int64_t workers;            ///< tiles that are multiplied at a time
  std::int64_t late_workers;       ///< the same where multiprocessors are spared
  std::int64_t token_steps;        ///< steps of a tile of the classifier
  std::int64_t entry_steps;        ///< steps of a tile of hidden states
  std::int64_t reduction;          ///< steps of the reduction

  static constexpr std::int64_t epilogue = 6;   ///< steps of a tile beside those of its depth
  static constexpr std::int64_t launches = 30;  ///< what a second launch costs

  /// For so many tokens and entries, and bytes that are reduced: 40 us, and 250 GB/s as on two H200 over NVLink.
  static constexpr std::int64_t steps_of(std::int64_t extent) { return divide_up(extent, std::int64_t{64}) + epilogue; }
  /// What a reduction over ranks takes, in steps.
  static constexpr std::int64_t reduction_of(std::int64_t bytes) { return 60 + bytes / 160000; }

  /// How many of the classifier's panels are multiplied after all of hidden states and beside their reduction; 0: none,
  /// where the last turns of two launches would take more time than is gained.
  [[nodiscard]] constexpr std::int64_t late_panels() const {
    std::int64_t best = 0;
    std::int64_t least = early(0) + reduction;
    for (std::int64_t late = 1; late <= classifier_panels; ++late) {
      std::int64_t const turns = divide_up(late * channel_tiles, late_workers);
      std::int64_t const cost = early(late) + max(launches + turns * token_steps, reduction);
      best = cost < least ? late : best;
      least = min(cost, least);
    }
    return best;
  }
  /// How many panels of hidden states, a multiple of `step`, are multiplied before the others, which then run beside
  /// their reduction, where there is no classifier's gradient; all: they are multiplied together.
  [[nodiscard]] constexpr std::int64_t early_hidden_panels(std::int64_t step) const {
    auto const turns = [&](std::int64_t panels, std::int64_t of) {
      return divide_up(panels * channel_tiles, of) * entry_steps;
    };
    std::int64_t best = hidden_panels;
    std::int64_t least = turns(hidden_panels, workers) + reduction;
    for (std::int64_t some = step; some < hidden_panels; some += step) {
      std::int64_t const of_some = reduction * some / hidden_panels;
      std::int64_t const cost = turns(some, workers) +
                                max(launches + turns(hidden_panels - some, late_workers), of_some) + reduction -
                                of_some;
      best = cost < least ? some : best;
      least = min(cost, least);
    }
    return best;
  }

 private:
  /// Steps of the launch that has all of hidden states and all but so many panels of the classifier.
  [[nodiscard]] constexpr std::int64_t early(std::int64_t late) const {
    std::int64_t const of_hidden = hidden_panels * channel_tiles;
    std::int64_t const others = (classifier_panels - late) * channel_tiles;
    std::int64_t const ratio = entry_steps / token_steps;
    if (ratio < 2) {
      std::int64_t const all = of_hidden + others;
      return divide_up(all, workers) * (of_hidden * entry_steps + others * token_steps) / max(all, std::int64_t{1});
    }
    std::int64_t const idle = (workers - of_hidden % workers) % workers;  // in the last turn of the longer ones
    return divide_up(of_hidden, workers) * entry_steps +
           divide_up(max(others - idle * ratio, std::int64_t{0}), workers) * token_steps;
  }
};

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

/// How many entries a part of the backward pass by gemm_ring and gradient_ring has: a multiple of 128, at most `most`,
/// for which most workers are busy at the end of each launch. Tiles have 128 rows and `columns` columns. A tile's
/// epilogue is counted as 6 steps of 64 of the depth, and a part's launches as 8.
[[nodiscard]] constexpr std::int64_t ring_part_entries(std::int64_t tokens, std::int64_t channels, std::int64_t most,
                                                       std::int64_t columns, std::int64_t workers) {
  constexpr std::int64_t step = 128;
  constexpr double epilogue = 6;
  constexpr double launches = 8;
  auto const waves = [&](std::int64_t tiles) { return static_cast<double>(divide_up(tiles, workers)); };
  auto const cost = [&](std::int64_t entries) {
    std::int64_t const across = divide_up(channels, columns);
    std::int64_t const rows = divide_up(tokens, step);
    std::int64_t const entry_rows = divide_up(entries, step);
    auto const of_entries = static_cast<double>(entry_rows * divide_up(tokens, std::int64_t{64}));
    auto const of_tokens = static_cast<double>(rows * divide_up(entries, std::int64_t{64}));
    double const depth = (of_entries + of_tokens) / static_cast<double>(entry_rows + rows);
    double const made = waves(rows * divide_up(entries, columns)) *
                        (static_cast<double>(divide_up(channels, std::int64_t{64})) + epilogue);
    double const multiplied = waves((rows + entry_rows) * across) * (depth + epilogue);
    return (made + multiplied + launches) / static_cast<double>(entries);
  };
  std::int64_t best = max(most / step * step, step);
  for (std::int64_t entries = best - step; entries >= most - most / 4 && entries >= step; entries -= step) {
    best = cost(entries) < cost(best) ? entries : best;
  }
  return best;
}

}  // namespace v0
}  // namespace tessera
