// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Merger has restore\(\): float restore\(float merged, kept_type, tessera::side\) const
#include <tessera/merge/slerp.hpp>

/// Keeps nothing, so it cannot tell the two sides apart.
struct without_restore {
  struct kept_type {};
  tessera::pair_products_reducer measure() const { return {}; }
  tessera::mix_weights mix(tessera::pair_products const&) const { return {0.5F, 0.5F}; }
  kept_type keep(tessera::pair_products const&) const { return {}; }
};

template <tessera::Merger M>
struct cross_layer_cache {
  M merger;
};

#if defined(TESSERA_FAIL)
cross_layer_cache<without_restore> cache;
#else
cross_layer_cache<tessera::slerp_merger<float>> cache;
#endif
