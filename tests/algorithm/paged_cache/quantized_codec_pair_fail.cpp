// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a cross_layer_cache of this codec has no pairs of layers
#include <tessera/algorithm/paged_cache/cross_layer_cache.hpp>
#include <tessera/algorithm/paged_cache/quantized_codec.hpp>
#include <tessera/quantize/asymmetric.hpp>

template <tessera::page_vectors Vectors>
using cache_type = tessera::cross_layer_cache<
    tessera::slerp_merger<float>, tessera::retain_most_different,
    tessera::quantized_codec<tessera::asymmetric_quantizer<4, 64>, tessera::asymmetric_quantizer<4, 64>, Vectors>>;

tessera::cache_layers how_layers_are_kept() {
#if defined(TESSERA_FAIL)
  return cache_type<tessera::page_vectors::plain>::pair();
#else
  return cache_type<tessera::page_vectors::directions>::pair();
#endif
}
