// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// MiniCache: a key-value cache in which neighbouring layers share the directions of their keys and values.
///
/// Liu, Liu, Pan, He, Haffari, Zhuang: "MiniCache: KV Cache Compression in Depth Dimension for Large Language Models"
/// (arXiv 2405.14366).
///
///     #include <tessera/exec/cpu.hpp>
///     #include <tessera/minicache.hpp>
///
///     tessera::cpu exec;
///     tessera::cache_extents const extents{slots, tokens, blocks, key_heads, channels};
///     tessera::minicache cache(exec, extents, tessera::minicache::half_merged(layers));
///     // prefill, decoding: algorithm/paged_cache/cross_layer_cache.hpp
///
/// For the keys x, y (or values) of one token in a head of two neighbouring layers, W the angle between them, t = 0.6:
///
///     e   = sin((1 - t) W) / sin W * x / |x|  +  sin(t W) / sin W * y / |y|                 (equation 3)
///     x'  = |x| e,   y' = |y| e                                                           (equation 2)
///     kept as they were: pairs whose W is at least Wmax - 0.05 (Wmax - Wmin)                (equation 4, turned round)
///
/// and e has 4 bits: groups of 64 tokens of a channel for keys, of 64 channels of a token for values; lengths make up
/// for what the rounding of e does to |e|. Layers that are not merged are kept the same way, as directions and lengths.
///
/// What differs from the paper: vectors are those of a head (minicache_paper: of all heads of a token); a token whose
/// key or value is too different is retained with both; thresholds follow from the first pages of a sequence whose
/// angles differ, by 2^-6 at least, and later ones are judged by them; tokens are compressed 64 at a time when they
/// have left the window of the newest ones. As printed equation 4 keeps the most similar pairs; text, figures and
/// ratios mean the most different ones.
///
/// What it is worth. A merged layer is not read any faster than an unmerged one: both layers read the whole page, and a
/// decoding step takes as long as with 4 bits alone. Merging saves room: up to 1.92 times on the layers that it is used
/// on. At the same room fewer bits are the alternative, and often the better one. Ratio: 2 bytes for each element to
/// all measured bytes of pages and retained tokens, without the window. Error: of attention's results, relative, mean
/// of both layers (tests/minicache_test.cpp). Known angles: 1024 tokens, 128 channels, 4 of them far from zero, 1 % of
/// tokens at cosine -0.6, lengths 1.22 times as long in the second layer; queries that look for single tokens. Real:
/// layers 14, 15 and 16 of SmolLM2-135M, 512 tokens, 64 channels, whose neighbours have little in common.
///
///     cosine of neighbours                 ratio    0.65   0.85   0.95   0.99      ratio  14, 15  15, 16
///     4 bits, not merged                    3.49    .092   .093   .095   .094       3.44    .090    .093
///     3 bits, not merged                    4.47    .198   .200   .203   .202       4.38    .190    .197
///     2 bits, not merged                    6.21    .428   .438   .449   .439       6.02    .530    .488
///     merged, 4 bits: slerp, retained       5.94    .469   .325   .201   .122   6.2 - 6.3   1.339   1.003
///                     slerp                 6.71    .498   .356   .236   .164       6.52   1.372   1.023
///                     slerp, t by lengths   6.71    .498   .354   .236   .164       6.52   1.356    .986
///                     average of directions 6.71    .505   .364   .245   .175       6.52   1.367   1.002
///                     average               6.71    .554   .415   .326   .285       6.52   1.055    .886
///                     longer vector         6.71    .532   .444   .382   .343       6.52   1.798   1.400
///
/// Cosine of restored keys and values to what they were, mean of both and of both layers. It does not say what merging
/// is worth: averages have that of slerp, and lose in lengths.
///
///     cosine of neighbours                          0.65   0.85   0.95   0.99             14, 15  15, 16
///     4 bits, not merged                            .997   .997   .997   .997               .997    .997
///     3 bits, not merged                            .984   .985   .985   .985               .987    .987
///     2 bits, not merged                            .923   .925   .926   .927               .938    .937
///     merged, 4 bits: slerp, retained               .904   .958   .984   .994               .687    .694
///                     slerp                         .897   .952   .978   .989               .685    .691
///                     slerp, t by lengths           .897   .952   .978   .989               .686    .688
///                     average of directions         .901   .954   .979   .989               .694    .700
///                     average                       .899   .952   .978   .988               .691    .695
///                     longer vector                 .815   .914   .963   .983               .484    .493
///
/// So: where the directions of neighbouring layers have cosines of 0.95 or more, merge, with retention: that has the
/// error of 3 bits, or less, in three quarters of the room. From 0.8 on it is better than 2 bits where 3 bits take too
/// much room. Below that, and for models like the real one here, do not merge. Slerp is 10 to 40 % better than averages
/// of vectors, because it keeps lengths; than averages of directions hardly at all.
///
/// examples/memory_report prints the real columns, minicache_paper's too (errors of 1.524 and 1.013), and all bytes of
/// LLaMA-2-7B's shape at 4096 tokens, half of its layers merged and 2 % of tokens retained: 3.97 times less than bf16,
/// minicache_paper 4.08, 3 bits without merging 4.03. The paper's 5.02 counts codes of 4 bits and their scales alone.
///
/// Bytes of a token, key head and layer with 128 channels: read 146.5 of 512 (3.49 times less), kept 76.25 in a merged
/// layer; with 64 channels 74.5 of 256. Retained tokens add 4 * channels bytes a layer. wait_for_statistics() counts.
///
/// Bytes are the same on every executor. They are the same whether tokens come one by one or at once, too, once
/// thresholds are known, and from the first token on where no angles decide (`retain_most_different::angle` and
/// `none`). The paper's rule, which is the default of pairs, takes its threshold from all pages that one call seals: of
/// a prompt that is appended at once from the whole prompt, as in the paper; of one that comes in pieces from the first
/// piece that seals pages with angles that differ. So pieces retain other tokens than the whole, and have other bytes.
/// Padding sets no threshold: zeros, one token many times, or NaNs.
///
/// Nothing waits but wait_for_statistics(), save_cache() and load_cache() (algorithm/paged_cache/saved_cache.hpp);
/// nothing allocates after construction: calls can be captured in CUDA graphs. Errors: shape_error and value_error that
/// name the function and show both values. What lists say where the executor runs, programs look at: a slot, length,
/// count or block that cannot be is what wait() throws, on every executor for the same lists; that sequence is left out
/// (its attention is NaN; nothing else of it is written), or the page whose block it is, and the others are as they are
/// without it.
///
/// CUDA, on sm_90: pages of 4 bits with 64, 128 or 256 channels are made and read by programs of their own. Those of 96
/// channels are read by one, and made by the portable programs, which are several times slower; the cache says so once
/// on the error stream where that is so (algorithm/paged_cache/paged_cache.cuh; TESSERA_ACCEPT_PORTABLE_CACHES keeps it
/// silent).
///
/// Infinities and NaNs: their tokens are retained; where there is no room for that, they come back as NaN. Vectors of
/// zeros come back as zeros. RoPE: keys may be kept before or after it, since it turns both layers' keys alike.
#pragma once

#include <tessera/algorithm/paged_cache/cross_layer_cache.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/quantize/asymmetric.hpp>

namespace tessera {
inline namespace v0 {

/// The method with vectors that are a head's own: angles, norms and what is retained are each head's.
using minicache = cross_layer_cache<slerp_merger<float>, retain_most_different, asymmetric_quantizer<4, 64>, bfloat16>;

/// The method as in the paper: vectors are those of all heads of a token together; 128 channels share a scale, as the
/// paper's ratio of 5.02 needs them to.
using minicache_paper =
    cross_layer_cache<slerp_merger<float>, retain_most_different_tokens, asymmetric_quantizer<4, 128>, bfloat16>;

}  // namespace v0
}  // namespace tessera
