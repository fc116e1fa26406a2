// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// MiniCache: a key-value cache in which neighbouring layers share the directions of their keys and values.
#pragma once

#include <tessera/algorithm/cross_layer_cache.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/quantize/asymmetric.hpp>

namespace tessera {
inline namespace v0 {

/// Vectors are a head's own: angles, norms and what is retained are each head's.
using minicache = cross_layer_cache<slerp_merger<float>, retain_most_different, asymmetric_quantizer<4, 64>, bfloat16>;

/// As in the paper: vectors are those of all heads of a token together; 128 channels share a scale, as its ratio of
/// 5.02 needs them to.
using minicache_paper =
    cross_layer_cache<slerp_merger<float>, retain_most_different_tokens, asymmetric_quantizer<4, 128>, bfloat16>;

}  // namespace v0
}  // namespace tessera
