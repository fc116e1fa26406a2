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
///     tessera::minicache cache(exec, extents, {.parts = tessera::minicache::half_merged(layers)});
///     // prefill, decoding: algorithm/paged_cache/cross_layer_cache.hpp
///
/// For the keys x, y (or values) of one token in a head of two neighbouring layers, W the angle between them, t = 0.6:
///
///     e   = sin((1 - t) W) / sin W * x / |x|  +  sin(t W) / sin W * y / |y|                 (equation 3)
///     x'  = |x| e,   y' = |y| e                                                           (equation 2)
///     not merged: pairs whose W is at least Wmax - 0.05 (Wmax - Wmin)                       (equation 4, reversed)
///
/// Layout: e has 4 bits an element, in groups of 64 tokens of a channel for keys and of 64 channels of a token for
/// values. The lengths |x|, |y| are corrected for the change of |e| by rounding. A layer that is not merged is kept in
/// the same way, as one direction and one length for each vector.
///
/// What differs from the paper: a vector belongs to one head (with minicache_paper: to all heads of a token together).
/// If the keys or the values of a token are too different, both its keys and its values are retained. The thresholds
/// follow from the first pages of a sequence whose angles differ by at least 2^-6, and hold for all later pages. Tokens
/// are compressed 64 at a time, when they have left the window of the newest ones. Equation 4 as printed keeps the most
/// similar pairs; the paper's text, figures and ratios mean the most different ones.
///
/// When to merge: if the directions of neighbouring layers have cosines of 0.95 or more, merge, with retention: the
/// error is at most that of 3 bits without merging, in three quarters of the memory. From 0.8 on, merging is better
/// than 2 bits; use it if 3 bits take too much memory. Below 0.8 do not merge. Merging makes the merged layers up to
/// 1.92 times smaller but saves no time: a step reads the whole page for either layer. docs/papers/minicache.md has the
/// measured errors and ratios of merging, of fewer bits, of other mergers and of a real model, whose layers should not
/// be merged.
///
/// Cost: for each token, key head and layer with 128 channels, a step reads 146.5 bytes, where bf16 has 512 (3.49 times
/// more), and a merged layer keeps 76.25 bytes. With 64 channels a step reads 74.5 bytes, where bf16 has 256. A
/// retained token adds 4 * channels bytes to a layer. wait_for_statistics() counts the bytes that are used.
///
/// Determinism: bytes are the same on every executor. Once the thresholds are set, they are also the same whether
/// tokens are appended one by one or many at a time. With `retain_most_different::angle` or `none` this is so from the
/// first token on. The paper's rule, the default of pairs, takes its threshold from all pages that one call seals. A
/// prompt that is appended in one call sets it by all of its pages, as in the paper. A prompt that is appended in
/// several calls sets it by the first call that seals pages with different angles, so that it retains other tokens, and
/// has other bytes, than the same prompt in one call. Padding sets no threshold: zeros, one token many times, or NaNs.
///
/// Only wait_for_statistics(), save_cache() and load_cache() (algorithm/paged_cache/saved_cache.hpp) wait, and nothing
/// allocates after construction: all other calls can be captured in CUDA graphs.
///
/// Errors: shape_error and value_error, which name the function and show both values. Programs check the slots,
/// lengths, counts and blocks that lists name on the device. For the same impossible lists, wait() throws the same
/// error on every executor. The sequence concerned is left out (its attention is NaN, and nothing else is written for
/// it), or only the page whose block is impossible. All other sequences and pages have the same results as without it.
///
/// CUDA, on sm_90: pages of 64, 128 or 256 channels are made and read by special kernels, and those of 96 channels read
/// by one, but made by the portable programs, which are several times slower. A cache whose parts have other bits than
/// its codec has such kernels for them if that is a direction_codecs that names them (paged_cache.cuh says for which
/// bits and groups there are any). Where a portable program runs instead, a line on stderr says so once (exec/run.hpp),
/// programs_of() of a cache says which programs a part gets and why, and an executor with `.options =
/// {.refuses_slower_programs = true}` throws.
///
/// Tokens with infinities or NaNs are retained; if there is no room for them, they are restored as NaN. Vectors of
/// zeros are restored as zeros. Keys may be stored before or after RoPE, since RoPE rotates both layers' keys by the
/// same angles.
#pragma once

#include <tessera/algorithm/paged_cache/cross_layer_cache.hpp>
#include <tessera/algorithm/paged_cache/direction_codec.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/merge/slerp.hpp>

namespace tessera {
inline namespace v0 {

/// MiniCache with the vectors of a head: each head has its own angles, norms and retained tokens.
using minicache = cross_layer_cache<slerp_merger<float>, retain_most_different, direction_codec<4, 64>, bfloat16>;

/// MiniCache as in the paper: a vector is that of all heads of a token together, and 128 channels share a scale, as the
/// paper's ratio of 5.02 needs them to.
using minicache_paper =
    cross_layer_cache<slerp_merger<float>, retain_most_different_tokens, direction_codec<4, 128>, bfloat16>;

}  // namespace v0
}  // namespace tessera
