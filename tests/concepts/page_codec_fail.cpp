// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a PageCodec says how many layers share a page: static constexpr int most_layers = 1, or 2
#include <tessera/algorithm/paged_cache/cross_layer_cache.hpp>
#include <tessera/algorithm/paged_cache/quantized_codec.hpp>
#include <tessera/quantize/asymmetric.hpp>

using quantizer = tessera::asymmetric_quantizer<4, 64>;

#if defined(TESSERA_FAIL)
using codec = quantizer;  // codes values, not pages
#else
using codec = tessera::quantized_codec<quantizer>;
#endif

tessera::cache_layers how_layers_are_kept() {
  return tessera::cross_layer_cache<tessera::no_merger, tessera::retain_most_different, codec>::single();
}
