// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// KIVI: a key-value cache in 2 bits, with quantization parameters for neighbouring tokens of a channel of keys, and
/// for neighbouring channels of a token's value.
///
/// Liu, Yuan, Jin, Zhong, Xu, Braverman, Chen, Hu: "KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache"
/// (arXiv 2402.02750).
///
///     #include <tessera/algorithm/paged_cache/kivi_cache.hpp>
///     #include <tessera/exec/cpu.hpp>
///
///     tessera::cpu exec;
///     tessera::cache_extents const extents{slots, tokens, blocks, key_heads, channels};
///     std::vector<tessera::cache_layers> const parts(layers, tessera::kivi_cache::single());
///     tessera::kivi_cache cache(exec, extents, {.parts = parts});
///     // prefill, decoding: algorithm/paged_cache/cross_layer_cache.hpp
///
/// Codes run from the smallest value of a group to the largest, with a scale and a minimum in fp16: 32 neighbouring
/// tokens of a channel of keys, 32 neighbouring channels of a token's value, as in the paper. Vectors are coded
/// directly, not as directions and lengths, and each layer is kept separately.
///
/// What differs from the paper: keys and values are coded 64 tokens at a time, when these have left the window of the
/// newest ones. So the newest `window` tokens, 128 by default, and up to 63 more stay uncompressed. In the paper these
/// are up to 128 of the newest keys, and the 128 newest values.
///
/// Cost: with 128 channels, a page of 64 tokens of a key head takes 6208 bytes, 97 for each token, where bf16 has 512.
/// Portable programs write and read the pages, also on CUDA devices, where they are several times slower than the
/// kernels for pages of a direction_codec.
///
/// Errors are those of minicache.hpp. Pairs of layers are also refused (pair() and half_merged() do not compile), and
/// so are save_cache() and load_cache(). Magnitudes above 65504 saturate. Keys and values with infinities or NaNs are
/// restored as NaNs, unless there is room to retain them (cache_layers::row_capacity, which is 0 for single layers).
#pragma once

#include <tessera/algorithm/paged_cache/cross_layer_cache.hpp>
#include <tessera/algorithm/paged_cache/quantized_codec.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/merge/no_merger.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/quantize/asymmetric.hpp>

namespace tessera {
inline namespace v0 {

/// KIVI with 2 bits and groups of 32. For other bits and groups take a quantized_codec of other quantizers.
using kivi_cache =
    cross_layer_cache<no_merger, retain_most_different, quantized_codec<asymmetric_half_quantizer<2, 32>>, bfloat16>;

}  // namespace v0
}  // namespace tessera
