// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Merger has restore\(\): float restore\(float merged, kept_type, tessera::side\) const
#include <tessera/merge/slerp.hpp>
#include <tessera/testing/laws/merger.hpp>

/// Keeps nothing, so it cannot tell the two sides apart.
struct without_restore {
  struct kept_type {};
  tessera::pair_products_reducer measure() const { return {}; }
  tessera::mix_weights mix(tessera::pair_products const&) const { return {0.5F, 0.5F}; }
  kept_type keep(tessera::pair_products const&) const { return {}; }
};

tessera::testing::vector_pair restored(tessera::testing::vector_pair const& pair) {
#if defined(TESSERA_FAIL)
  return tessera::testing::merge_and_restore(without_restore{}, pair);
#else
  return tessera::testing::merge_and_restore(tessera::slerp_merger<float>{}, pair);
#endif
}
