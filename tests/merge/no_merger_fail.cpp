// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a cross_layer_cache of this merger \(no_merger\) has no pairs of layers
#include <tessera/algorithm/paged_cache/cross_layer_cache.hpp>

using cache_type = tessera::cross_layer_cache<tessera::no_merger>;

tessera::cache_layers how_layers_are_kept() {
#if defined(TESSERA_FAIL)
  return cache_type::pair();
#else
  return cache_type::single();
#endif
}
