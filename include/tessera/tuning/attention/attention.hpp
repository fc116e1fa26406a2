// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Warpgroups, pipeline stages and splits for sm_90a's programs of algorithm/attention/attention.hpp, with the
/// measurements that chose them.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of warpgroup_attention. A thread block has 64 rows of queries for each consumer warpgroup.
struct warpgroup_attention_policy {
  int consumers;              ///< consumer warpgroups
  int stages;                 ///< pipeline stages, each a tile of 128 keys and a tile of 128 values
  int value_channels;         ///< channels of values that are multiplied at a time
  int product_sets;           ///< sets of registers for products; 0: the compiler chooses registers
  int producer_registers;     ///< registers of each thread of the producer warpgroup
  int consumer_registers;     ///< registers of each thread of the consumer warpgroups
  bool has_first_tile_apart;  ///< whether the sequence's first tile has code of its own, so that the others' is shorter
  bool keeps_descriptors;     ///< whether descriptors of operands stay in registers; else each tile makes them again
  int score_channels = 0;     ///< channels of queries and keys; 0: as many as values have
  /// Whether sums of products begin at what tensor cores make: scores of mean queries, lines, or, where nothing is
  /// added, the float whose bits make floats of integers.
  bool begins_at_products = false;
  /// Whether a tile's keys and values arrive together, and are released together; else keys are released, and loaded
  /// again, before values are.
  bool joins_rings = false;

  friend constexpr bool operator==(warpgroup_attention_policy const&, warpgroup_attention_policy const&) = default;
};

/// The policy for `Channels` channels.
///
/// H200, TFLOP/s of the program alone, counting 4 * queries * keys * channels operations a head (half of them if
/// causal), for 8 x 16 heads of 4096 and 2 x 16 heads of 16384 tokens of 128 channels, twice as many heads of 64
/// channels, 16 heads of 256. The columns are from one run on one card, with softmaxes and layouts alternating; between
/// runs the same program varies by up to 5 %. "this" is the policy below:
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
/// TFLOP/s of several ways to compute codes from scores, for 128 channels and 4K and 16K tokens, measured before NaNs
/// and large scales were handled: Conversions to bytes with saturation (F2IP, half an instruction a score): 1001 and
/// 1148, with products undivided 1031 and 1179. Conversions to bf16 around 128, whose mantissa is the code, with a
/// maximum of pairs: 935 and 1058. Scores cut off below first, so that a byte of the sum is the code: 911 and 1023.
/// Scores converted by I2F: 997 and 1126. Sums of products that begin at 1.5 * 2^23: 990 and 1108 (56 bytes spilled).
/// Exponentials: 835 and 932. So fewer instructions are not faster if they run in the same pipe as the maxima. Samples
/// of a warp with the first way: 34 % wait for tensor cores, 16 % issue, 16 % are held back by the register file's
/// ports, 13 % by other warps, 9 % by latencies. Tensor cores are busy in 62 % of cycles, schedulers issue in 47 %. In
/// a long run the clock drops for power, to about 1.7 GHz.
///
/// With a branch for large scales in each tile the program takes 2 % more at 128 channels and 3 % more at 64 (of the
/// time with exponentials, in two runs), so that blocks of queries with large scales have separate code. Products of 64
/// of 128 channels at a time are 4 % slower than undivided ones, 3 warpgroups for 64 channels 5 % slower than 4. Large
/// scores whose codes are rounded after the first tile's second line, and not before it too, spill two registers more
/// in the loop of 64 channels; with that, and keys' scales in a ring twice as long, it was 1.8 % slower. Earlier, with
/// exponentials, relative to this policy: products overlapped with the softmax of one warpgroup (2 warpgroups of 240
/// registers) 0.90, a cluster of two that shares keys 0.97, 3 stages 0.96.
///
/// At 64 channels the card's power is the limit (16K: 690 of 700 W, at 1845 to 1890 of 1980 MHz), so that the number of
/// instructions counts, whatever their pipe. Speed at 16K and causal 16K, alternating variants on one card, relative to
/// descriptors made in each tile and arrivals of a chosen lane (330 instructions a tile):
///
///     64 channels                                        full   causal
///     descriptors kept, an elected lane arrives          1.018   1.017     (318 instructions)
///     an elected lane arrives                            1.009   1.008     (327)
///     descriptors kept                                   1.015   1.011
///     and one arrival for keys, which is not safe        1.020   1.014
///     half of the additions by IMAD, to free the ALU      .963    .962
///     products begun with half of the weights             .913    .920
///     128 channels
///     descriptors kept, an elected lane arrives           .992    .983
///     an elected lane arrives                             .995    .996
///
/// Words, and outputs in other banks (below), took 2.4 to 3.6 % of 64 channels' full speed again: a register more is
/// spilled in each tile. TFLOP/s over codes, in turns in one process, with the same bits. "This" has a tile's keys and
/// values at the same barriers, one wait and one arrival in place of two and three, and tensor cores make 1.5 2^23, at
/// which sums begin, so that no additions make floats of them:
///
///     64 channels                                 16K  causal   4K    in another run   instructions a tile
///     loops over registers by hand                881   790    774    872   811        318, 8 conflicts (see below)
///     row words and pipelined loops               873   789                            321, 7 conflicts
///     and outputs in other banks                  860   790    782    841   807  776   319
///     and common barriers                         892   810    801    879   820        313
///     and scales of queries in a register         891   809    804                     311
///     common barriers, sums begin at 1.5 2^23     903   816    809    889   832        257
///     and its descriptor in a register                                896   838  817   250
///     and scales of queries in a register: this                       899   847  826   248
///
/// Sums that begin at 1.5 2^23 with 128 and 256 channels: .986 (causal .979) and .948 of the speed without.
///
/// With 256 channels, warpgroups that alternate by named barriers, so that products of one run beside the softmax of
/// the other, are slower: .91 and causal .90 if a turn has the products of values and the next scores, .97 and causal
/// .97 if it has scores alone.
///
/// Codes of queries made by the program itself, from bf16 to bf16, speed relative to codes that were made before,
/// measured alternately on one card: 128 channels 4K 1.013, causal 1.033; 16K 1.012, causal 1.007; 32K 0.998, causal
/// 0.997; 64 channels 4K 1.020, 16K 1.004, causal 1.009; 256 channels 0.996, causal 1.005. At 4K quantization takes 95
/// us in place of 141, this program 1049 in place of 1023, with 8 % more instructions (counted when loops of codes were
/// 15 % longer). Causal 4K with one load of each row of a pair at a time: 0.965; two, and the thread block's first
/// block made by three warps like the others: 1.010; with rows prefetched to L2, too: 1.000.
///
/// Queries and keys in e4m3 (float8_attention), speed relative to int8 (sage_attention2), in turns on an H200, from
/// bf16 to bf16 and over codes:
///
///     128 channels, 16K                       full           causal
///     this, piecewise_linear_softmax          1.097  1.096   1.092  1.090
///     maxima of floats, two at a time         1.048  1.052
///     this, online_softmax in both            1.041  1.043   1.033  1.032
///      64 channels, 16K
///     this, piecewise_linear_softmax          1.044  1.045   1.036  1.038
///     maxima of floats, two at a time          .988   .986    .984   .980
///     this, online_softmax in both            1.081  1.084   1.075  1.076
///     256 channels, 16K
///     this, piecewise_linear_softmax           .963   .966
///     maxima of floats, two at a time          .942   .947
///     this, online_softmax in both            1.030  1.029
///
/// Three operands of a fused multiply-add in registers that are all even, or all odd, take a cycle more. ptxas pairs
/// outputs where two are stored at once, so that they were as even as the products that are added to them: 12 such
/// conflicts a tile of 128 channels, 23 of 256, up to 33 with lists, each of them three times for three warpgroups.
/// With neighbouring outputs stored the other way round (merge_forward_splits.hpp) there are none or one. With that,
/// and with the factors of results loaded together, 16 at a time in place of one, the speed in turns over codes of 16K
/// tokens is, full and causal, with the same bits:
///
///     128 channels       1.024  1.019     (4K tokens 1.049, 1K tokens 1.088)
///     256 channels       1.052  1.042
///      64 channels        .998  1.017
///     linear_bias        1.019  1.027     (128 channels)
///     dense_bias         1.013  1.024     (128 channels)
///     mean queries       1.027  1.029     (128 channels)
///
/// The programs of 64 and 128 channels spill some registers for a part of a tile (ptxas: 216 and 48 bytes, most of them
/// where tiles are masked).
///
/// 256 channels, 16 heads of 16384 tokens: 1094; 32 query heads of 4 key heads, causal: 1160, with one set of products
/// after the other 1058, with sets of 96 channels 1108. 192 channels: 904, 844, 857. 3 tiles of keys do not fit.
template <int Channels>
struct warpgroup_attention_tuning {
  using policy_type = warpgroup_attention_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 128  ? policy_type{2, 2, 64, 2, 24, 240, false, false}
           : Channels > 64 ? policy_type{3, 4, 128, 0, 32, 160, false, false}
                           : policy_type{4, 6, 64, 0, 32, 112, true, true, 0, true, true};
  }
};

/// The policy for queries and keys of up to 192 channels with values of up to 128, where nothing is added to scores.
/// Panels of 64 channels hold no zeros in place of channels 193 to 256. 4 tiles of keys do not fit: they take 168 KiB
/// beside 72 of queries.
///
/// H200, 2 x 16 heads of 16384 tokens, 192 and 128 channels: 1268 TFLOP/s over codes, 1213 from bf16 to bf16; causal
/// 1175 and 1065. In turns with 128 channels of both: 1.14, 1.12, 1.10 and 1.06 of its operations a second. Other
/// policies were not measured.
struct attention_wide_keys_tuning {
  using policy_type = warpgroup_attention_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {3, 3, 128, 0, 32, 160, false, false, 192}; }
};

/// The policy for `Channels` channels where terms are added to scores: a bias, or the scores of mean queries. HasTiles:
/// whether biases are loaded in tiles, 16 KiB for each warpgroup of a stage.
///
/// H200, 16K tokens, speed over codes relative to the same without terms, in turns (bench/attention), for a function
/// slope(head) * (key - query), linear_bias, dense_bias in bf16 that all heads share, and scores of mean queries:
///
///     128 channels                                     function   linear   dense   mean queries
///     this: 3 warpgroups, sums begin at terms           .59        .91      .73     .90
///     where terms lie looked up for each tile           .59        .91      .72     .89
///     each tile reads the slope, copies of sums; means
///     of 64 queries                                     .59        .87      .72     .83
///     2 warpgroups with 240 registers                   .57        .71      -       .72
///     terms made before the scores, added after them    -          .77      .21     .76     (spills)
///     terms made twice, checked before, added after     -          .82      .54     .73
///     terms added to scores as floats                   .58        -        -       .82     (mean queries staged)
///     and read from L2 by each lane                     .49        -        .22     .62
///      64 channels
///     this: 3 warpgroups                                .51        .81      .64     .79
///     descriptors made in each tile                     .51        .80      .63     .79
///     and where terms lie looked up for each tile       .51        .80      .62     .73
///     and 8 stages in place of 6                        -          .80      -       .79
///     this with 4 warpgroups of 112 registers           -          .83      -       .69
///     2 warpgroups with 240 registers                   .44        .59      -       .62
///
/// Counted in the machine code of a tile of 128 channels without a mask: 374 instructions without terms, 408 with a
/// linear_bias, 580 with dense biases. The ratio of speeds is nearly that of instructions. A linear_bias had 423 while
/// the compiler copied the second row's sums from the first one's, 32 moves of two cycles, and each tile read the
/// head's slope from memory before its products could begin. The columns of a linear_bias and of mean queries are of
/// the time when lanes made what sums begin at; see attention_line_tuning and attention_corrections_tuning.
///
/// Dense biases since, 128 channels, from bf16 to bf16 and over codes, relative to sage_attention2 with loops that are
/// words: .700 and .695; loaded as matrices, 8 instructions in place of 32: .716 and .710. That sums begin where they
/// may is seen at each row's largest sum in place of each term before the products: .775 and .771 (causal .780 and
/// .777; before .712 and .705). 64 channels, from bf16 to bf16: .708 (.653). With begun sums in tiles with a mask, too,
/// ptxas spills 11 registers in each tile in place of 6.
///
/// Sums of products of e4m3 do not begin at terms, which they would cut off at 13 bits: terms are added to scores. With
/// a linear_bias the speed is .83 of sage_attention2's without (128 channels, from bf16 to bf16; sage_attention2 with
/// it .91). With 64 channels, when sage_attention2 had .77 with it, it was .69.
template <int Channels, bool HasTiles>
struct attention_terms_tuning {
  using policy_type = warpgroup_attention_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 128  ? policy_type{2, HasTiles ? 1 : 2, 64, 1, 24, 240, false, false}
           : Channels > 64 ? policy_type{3, HasTiles ? 2 : 4, 128, 0, 32, 160, false, false}
                           : policy_type{3, HasTiles ? 3 : 6, 64, 0, 32, 160, false, true};
  }
};

/// The policy for up to 128 channels where scores of mean queries are added, and nothing else: tensor cores make what
/// sums of products begin at (program/attention/detail/correction_products.cuh).
///
/// H200, 16K tokens, sage_attention2 with smoothed queries, speed relative to it without, in turns (bench/attention),
/// over codes and from bf16 to bf16. These are relative to the program without before its loops were words, by which it
/// is 1.07 times as fast with 128 channels, where this is as fast as before: .921 and .887 of it since.
///
///     128 channels                                               codes   causal   bf16   causal
///     this                                                       .983    .983     .944   .928
///     the products of mean queries awaited before those of codes .957    .957     .922   .906
///     lanes make what sums begin at                              .893    .896     .861   .856
///      64 channels
///     this                                                       .888    .892
///     4 warpgroups of 112 registers (spills), awaited            .752    .756
///     lanes make what sums begin at                              .797    .813     .773   .775
///
/// sage_attention2_int4, which has the same corrections, has .947 from bf16 to bf16 (.862 while lanes made them).
///
/// A tile of 128 channels without a mask has 340 instructions; 374 without corrections, whose sums are made floats by
/// 64 additions, and 410 where lanes made what sums begin at. Tensor cores have 64 cycles more, of 528. Of lanes' way
/// the profiler said that a tile waited for corrections for 8 % of its time, since loads from shared memory take 200
/// cycles beside tensor cores that read their operands there. Hiding these waits was slower: the scale and the barrier
/// of the next tile before the products of this one are awaited .86 (over codes); all corrections while products are
/// added up: 100 spills a tile; products of 64 keys at a time, so that half of the loads run beside products, .86.
///
/// From bf16 to bf16 making codes takes 145 us more than without smoothed queries, in which corrections are made and
/// written as fp32, 268 MB (program/attention/detail/query_corrections.cuh). Making them by wgmma, with means kept in
/// shared memory for 8 tiles, did not change the time. Since means are left operands as ldmatrix takes them, without
/// moves between registers, 128 channels have .891 from bf16 to bf16 and causal .882 in place of .887 and .877.
///
/// Of 294 us for all codes of 128 channels the last launches take 133, in which corrections are made: by what a causal
/// call takes, which makes half of them, 70 whatever their number is, of which 32 are the floor of reading keys again,
/// and 63 for 67 million of them, the rate at which memory takes their 268 MB. Ways to take less of it, by speed from
/// bf16 to bf16 relative to sage_attention2, and us for codes, in turns in each run. None is faster, and errors are the
/// same (.00211 with 128 channels, .00209 with 64):
///
///     128 channels                                                 causal
///     this                                             .891  294   .877  262
///     codes of keys in the launch of corrections       .891  292   .878  263
///     and keys brought to L2 for the block after next  .890  296   .874  268
///     in another run: corrections in 16 bits           .871  311   .863  273
///     the same program over corrections in fp32        .879  306   .869  271
///      64 channels
///     this                                             .861  368   .849  308
///     codes of keys in the launch of corrections       .861  370   .855  310
///     and keys brought to L2 for the block after next  .863  352   .853  315
///     in another run: corrections in 16 bits           .833  372   .827  316
///     the same program over corrections in fp32        .823  378   .819  314
///
/// Codes of keys in the last launch are made of what it has in registers, so that 134 MB are not read again: the other
/// launches take 45 us less, and it takes 43 more. Corrections in 16 bits, steps of 2^-16 of the range of 32 keys (and
/// of 2^-7 of its lowest one), halve what is written and read, but are made in more instructions, and the warps that
/// make operands of them have more to do. Attention over them has .936 of the speed of sage_attention2 with its
/// quantization (64 channels .888), over fp32 by the same program, in which these warps and the producer ask which of
/// both they have, .951 (.869); this has .954 (.920) in its run. So fewer bytes help with 64 channels, by less than is
/// lost, probably by what these warps do between a tile's arrival and its use: no profiler was asked.
///
/// Another program for corrections and codes of keys was not faster either: blocks of two warpgroups have 128 means as
/// left operands in registers, and take every eighth tile of a head, two of which are copied ahead to shared memory;
/// codes are made of what is there, wgmma multiplies. us for all codes, in turns in one run (of sage_attention2, whose
/// launches make no codes of queries, 156), and the speed from bf16 to bf16, by which this had .901 and .876 there:
///
///                                                       128 channels      64 channels
///     this                                              295   .901        368   .876
///     tiles ahead, wgmma, 64 keys at a time             293   .903        405   .872
///     32 keys at a time; 128 (spills)                   296; 359          408; 451
///     codes of keys in the launch before                298               413
///     without writing corrections                       231               243
///     mma.sync by the same blocks, in another run       307 (this: 293)   403 (365)
///     and blocks take neighbouring tiles                319               436
///     and neither products nor corrections              185               174
///
/// So products are hidden, and writes are not: they take 62 us for 268 MB, and 162 for 537 MB. Where blocks write at a
/// time probably counts: 4 KiB of a row of scores here, 512 bytes where they take neighbouring tiles, which is slowest,
/// and whole rows in the program as it is, whose blocks take tiles in their order.
///
/// Not built, by count: corrections that attention makes of keys in bf16 take 32 KiB more for each tile, twice what is
/// loaded now. Mean queries in two parts of 8 bits, times codes of keys, are one more product of 64 rows for a thread
/// block, 256 cycles of 1776, and codes of keys would move corrections by .007 in base 2 (rms) on the benchmark's data,
/// beside .019 by which rounding moves scores, and by more where means of queries are larger.
template <int Channels>
struct attention_corrections_tuning {
  using policy_type = warpgroup_attention_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 64 ? policy_type{3, 4, 128, 0, 32, 160, false, false, 0, true}
                         : policy_type{3, 6, 64, 0, 32, 160, false, true, 0, true};
  }
};

/// The policy for up to 128 channels where a linear_bias is added to scores: tensor cores make what sums of products
/// begin at (program/attention/detail/line_products.cuh).
///
/// H200, 16K tokens, sage_attention2 with a linear_bias, speed relative to it without, in turns (bench/attention), over
/// codes and from bf16 to bf16, after its loops became words:
///
///     128 channels                                     codes   causal   bf16   causal
///     this                                             .928    .937     .923   .926
///     lanes make what sums begin at                    .867    .885     .865   .878
///      64 channels
///     this                                             .895    .897     .894   .890
///     lanes make what sums begin at                    .828    .838     .829   .834
///
/// A tile of 128 channels without a mask has 340 instructions in place of 408, and tensor cores 64 cycles more. With
/// conditions that may be skipped (&& in place of &) the loop had branches: about 375 instructions, and 192 bytes of
/// spill stores in place of 112.
template <int Channels>
struct attention_line_tuning {
  using policy_type = warpgroup_attention_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 64 ? policy_type{3, 4, 128, 0, 32, 160, false, false, 0, true}
                         : policy_type{3, 6, 64, 0, 32, 160, false, true, 0, true};
  }
};

/// The policy for `Channels` channels where there are lists of tiles and nothing is added to scores.
///
/// H200, 16K tokens over codes, lists of half of the tiles, chosen at random for each block of 64 queries, for each
/// three of them (192) alike, or of all tiles: the speed for each visited tile relative to that without lists before
/// outputs of either were in other banks than products, in turns. Relative to it since, 128 channels have .85, causal
/// .82, and 64 channels .89 and .81 (bench/results). The line "this" is of a run in which plans of ten steps had .803,
/// .775, .876 and .943, and .830, .779 and .922:
///
///                                                    128 channels                  64 channels
///                                                  half causal   192    all      half causal   all
///     plans of ten steps                           .803   .789  .873   .941      .831   .783  .920
///     factors of results loaded together           .816   .804  .888   .943
///     and plans of runs, one barrier for keys and
///     values, no wait between products             .836   .806  .907   .980      .873   .790  .967
///     and outputs in other banks: this             .844   .809  .915   .985      .880   .801  .972
///     without that, with queries of each warpgroup
///     in one stage, 6 and 12 stages of keys        .827   .803  .907   .979      .865   .778  .963
///     and what warps look up found ahead           .810   .789  .891   .952      .879   .785  .976
///     and two barriers                             .804   .781  .885   .941
///
/// The last two lines have 33 conflicts of banks in a tile of 128 channels, the two before "this" 26 and 17, the one
/// behind it 19, and "this" none; but for that the last two are as fast as the line before. So neither a deeper ring
/// nor an earlier beginning is worth anything. What is left of lists of half of the tiles: three blocks of queries that
/// see the same tiles have twice the beginnings and ends for each tile (7 %), and each stage that a warpgroup passes
/// over costs 300 cycles, whatever the number of its instructions: three for each four that it takes (8 %).
///
/// Since then 64 channels have common barriers and sums that begin at 1.5 2^23, as without lists: 1.059 times the speed
/// of before, causal 1.049 (common barriers alone 1.020 and 1.026). So they have .868 and .796 of the speed without
/// lists, which is 1.07 and 1.05 times what it was. With 128 channels common barriers have 1.005, causal .992, where
/// 192 queries share a list .997; sums that begin at 1.5 2^23 have 1.008 and causal .992.
///
/// In later turns, of two launches of a program each, 128 channels, where "this" has .811, 192 queries .900, and all
/// tiles .977 of the speed without lists:
///
///     values are not loaded, which halves what L2 and TMA do     .807   192 queries .901
///     all blocks of queries of a head have the same list         .887
///     lists of 192 queries, 32K tokens                           .929
///     warpgroups begin 2500 cycles apart                         .807   192 queries .904   without lists 1.004
///     codes of queries made by warps 2 and 3, from bf16          .804   without .805; 64 channels .852 for .850
///
/// So neither L2 nor what TMA writes holds lists back. By the lines for 16K and 32K tokens the beginning and end of a
/// work item take as long as 7 tiles, where they take 4 without lists, and a tile of half of the tiles 4 % more time
/// than one of all tiles.
///
/// Where the wait for a tile's scales came before the last of four products of queries and keys, and exponentials of
/// references behind the products of values, lists of all tiles had .94. Now the scales' product is made of a score,
/// too, by a selection that the compiler cannot foresee. Exponentials before the products by the same means: .971 in
/// place of .979.
///
/// Before plans, and with plans of ten steps, relative to the program without lists before its loops were words, by
/// which that is 1.07 times as fast:
///
///                                                    128 channels                      64 channels
///                                            codes   causal   bf16   causal   of 128   codes   causal
///     plans; ascending tiles                  .888    .862     .859   .815     .910     .826    .792
///     asked in each step                      .834    .795     .810   .753     .853     .809    .758
///     plans; lists advance evenly             .855    .765     .829   .730     .903     .742
///     the same, entries read 8 to 16 ahead    .884    .860     .856   .816     .903     .758
///     ascending, entries read 8 to 16 ahead   .878    .860     .851   .812     .900     .817
///
/// Where lists advance evenly, the next step is the tile that the list with the most entries left has next, among those
/// that all lists have within their next eight, so that no tile is loaded twice. By a model of the ring's waits it is
/// worth 4 %; what the warp that merges does takes too long for it, with 64 channels most of all. With plans, too: of
/// 16 merged steps, one for each lane, the next is the one that leaves the warpgroups with the most equal numbers of
/// tiles. Models of the ring promise 1 to 12 %. Lists of half of the tiles have .723 for .814 in the same run (64
/// channels .703 for .857, lists for 128 queries .791 for .851), .758 (.721, .817) where steps wait in their old order.
///
/// Tried before plans, slower or the same, over lists of half and of all tiles of 128 channels: the producer tells each
/// warpgroup where its tiles lie, and releases them for the others (.826, .917; 64 channels .758, .883); with messages
/// that are read while products are made (.817, .910); steps that are chosen from the next 8 entries of each list so
/// that warpgroups advance evenly, which loads more tiles twice (.768, .916; 64 channels .62); 3 warpgroups of 160
/// registers for 64 channels (.68); waits that suspend the thread for longer (.826, .923); 4 stages in place of 5
/// (.821).
template <int Channels>
struct attention_list_tuning {
  using policy_type = warpgroup_attention_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 128  ? policy_type{2, 2, 64, 2, 24, 240, false, false}
           : Channels > 64 ? policy_type{3, 5, 128, 0, 32, 160, false, false}
                           : policy_type{4, 8, 64, 0, 32, 112, false, true, 0, true, true};
  }
};

/// The policy by which the last work items of sm_90a's program are split. Costs are in quarters of the time of a tile.
struct attention_split_policy {
  int tile[4];     ///< cost of a tile for one, two, three and four warpgroups of a block
  int ranges;      ///< ranges of splits for each multiprocessor
  int least;       ///< the least cost of a range
  int split;       ///< cost of a split beyond its tiles: loading queries, and fp32 sums of 192 rows
  int merging;     ///< cost of merging splits
  int least_gain;  ///< splits must save at least one part in so many

  friend constexpr bool operator==(attention_split_policy const&, attention_split_policy const&) = default;
};

/// The policy for splits of the keys. A tile takes 1.8 us at 128 channels.
struct attention_split_tuning {
  using policy_type = attention_split_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {{2, 3, 4, 5}, 1, 16, 6, 12, 200}; }
};

/// The policy of attention_of_few_queries: how many bytes are being loaded at a time.
struct few_queries_policy {
  int stages;  ///< pipeline stages of a thread block, each with tiles of 128 keys and of 128 values
  int blocks;  ///< thread blocks of a multiprocessor
  int tiles;   ///< tiles of keys, and of values, of a stage: those that warps take between two syncs
  /// Whether TMA loads tiles, for all warps; else each warp copies what it reads.
  bool has_boxes;

  friend constexpr bool operator==(few_queries_policy const&, few_queries_policy const&) = default;
};

/// The policy of attention_of_few_queries for `Channels` channels. A tile of 128 channels has 32 KiB of keys and
/// values: one tile of keys and two of values are in use, the others are being loaded.
///
/// H200, 8 key heads, 131072 tokens of 128 channels, 268 MB: 76.2 us; 64 sequences of 4096 tokens: 137 us. Of the 76.2
/// us the launch takes 3.4, and 1.6 to 4 pass before a block has its first tile. Multiprocessors are done 45 to 69 us
/// after the launch began (62 in the mean: they do not get the same part of the bandwidth). Merging the splits takes 4,
/// 0.7 of which pass until its blocks go on. With alternating tiles of a head's splits: 77; with 2 stages: 77; with
/// tiles that leave L2 first: 77. 64 channels: 6 stages and 2 blocks 48.1, 4 stages and 3 blocks 48.6. With 16 rows (4
/// queries of 16 query heads, 4 sequences of 32K tokens) the softmax counts: 116 us with integer scores and masks only
/// where they are needed, 129 with scores converted and masked one by one.
///
/// sm_80's code on an H200, without TMA, us (part of the rate of a kernel that only reads), by stages, blocks and
/// tiles. The 16 rows are 4 queries of 16 query heads, 4 sequences of 32K tokens. attention_tiles takes 703 us (.083)
/// for the first column:
///
///     128 channels          1 x 128K     64 x 4K      16 rows      96 channels, 128K
///     1, 2, 1: this         72.8 (.79)   133 (.87)    155 (.37)    67.4 (.64)
///     codes widened by logic alone, in this line and in those that follow
///     1, 2, 1               74.0         138          168          72.0
///     2, 2, 1               74.6         138          168          72.6
///     1, 2, 2               74.7         137          163          68.2     (spills 4 bytes; for sm_80 32)
///     2, 1, 1               92.9         177
///     1, 1, 2               88.0         162          211
///     1, 3, 1               96.0         202                                (spills 124 bytes)
///      64 channels          1 x 128K
///     1, 2, 2: this         49.6 (.58)
///     1, 2, 2               50.6
///     2, 2, 2               51.7
///     2, 2, 1               57.3
///     2, 3, 1               56.5
///     256 channels          1 x 128K
///     1, 1, 1: this         134 (.86)
///     1, 1, 1               136
///     1, 2, 1               141                                             (spills 72 bytes)
///
/// So one stage is enough where another block works meanwhile, and instructions count. With lanes' numbers that have a
/// sign, whose divisions take three instructions each, and with code that looks for work items in twelve places in
/// place of five, 128 channels took 76.5 us: by ncu 550 instructions of a warp for a tile, of which a scheduler issues
/// 0.59 a cycle.
template <int Channels>
struct few_queries_tuning {
  using policy_type = few_queries_policy;
  TESSERA_FN constexpr policy_type operator()(int architecture) const {
    if (architecture < 900) {
      return Channels > 128  ? policy_type{1, 1, 1, false}
             : Channels > 64 ? policy_type{1, 2, 1, false}
                             : policy_type{1, 2, 2, false};
    }
    return Channels > 128  ? policy_type{3, 1, 1, true}
           : Channels > 64 ? policy_type{3, 2, 1, true}
                           : policy_type{6, 2, 1, true};
  }
};

}  // namespace v0
}  // namespace tessera
