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
///     kept as they were: pairs whose W is at least Wmax - 0.05 (Wmax - Wmin)                (equation 4, turned round)
///
/// Layout: e has 4 bits an element, in groups of 64 tokens of a channel for keys and of 64 channels of a token for
/// values. The lengths |x|, |y| are corrected for what the rounding of e does to |e|. A layer that is not merged is
/// kept the same way, as one direction and one length for each vector.
///
/// What differs from the paper: vectors are those of a head (minicache_paper: of all heads of a token). A token whose
/// key or value is too different is retained with both. The thresholds follow from the first pages of a sequence whose
/// angles differ by at least 2^-6, and later pages are judged by these thresholds. Tokens are compressed 64 at a time,
/// when they have left the window of the newest ones. Equation 4 as printed keeps the most similar pairs; the paper's
/// text, figures and ratios mean the most different ones.
///
/// When to merge: where the directions of neighbouring layers have cosines of 0.95 or more, merge, with retention; that
/// has the error of 3 bits, or less, in three quarters of the room. From 0.8 on merging is better than 2 bits, where 3
/// bits take too much room. Below 0.8 do not merge. Merging saves room, up to 1.92 times on the merged layers, and no
/// time: a step reads the whole page for either layer. docs/papers/minicache.md has the measured errors and ratios of
/// merging, of fewer bits, of other mergers and of a real model, whose layers should not be merged.
///
/// Cost: bytes of a token, key head and layer with 128 channels: a step reads 146.5 of 512 (3.49 times less), and a
/// merged layer keeps 76.25; with 64 channels a step reads 74.5 of 256. A retained token adds 4 * channels bytes to a
/// layer. wait_for_statistics() counts the bytes that are used.
///
/// Determinism: bytes are the same on every executor. They are also the same whether tokens come one by one or at once,
/// as soon as the thresholds are known, and from the first token on where no angles decide
/// (`retain_most_different::angle` and `none`). The paper's rule, the default of pairs, takes its threshold from all
/// pages that one call seals. A prompt that is appended at once sets it as a whole, as in the paper; a prompt that
/// comes in pieces sets it by the first piece that seals pages with angles that differ. So a prompt in pieces retains
/// other tokens than the whole prompt, and has other bytes. Padding sets no threshold: zeros, one token many times, or
/// NaNs.
///
/// Only wait_for_statistics(), save_cache() and load_cache() (algorithm/paged_cache/saved_cache.hpp) wait, and nothing
/// allocates after construction: all other calls can be captured in CUDA graphs.
///
/// Errors: shape_error and value_error, which name the function and show both values. Programs check the slots,
/// lengths, counts and blocks that lists name on the device. What wait() then throws for an impossible one is the same
/// on every executor for the same lists. The sequence concerned is left out (its attention is NaN; nothing else of it
/// is written), or the page whose block is impossible; all other sequences and pages are as they would be without it.
///
/// CUDA, on sm_90: pages of 4 bits with 64, 128 or 256 channels are made and read by kernels of their own. Pages of 96
/// channels are read by such a kernel, but made by the portable programs, which are several times slower. A line on
/// stderr says so once (exec/run.hpp), programs_of() of a cache says which programs a part gets and why, and an
/// executor with `.options = {.refuses_slower_programs = true}` throws where a portable one would run.
///
/// Tokens with infinities or NaNs are retained; where there is no room for that, they come back as NaN. Vectors of
/// zeros come back as zeros. Keys may be kept before or after RoPE, since RoPE turns both layers' keys alike.
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
