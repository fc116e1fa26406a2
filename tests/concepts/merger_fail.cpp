// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Merger has keep\(tessera::pair_products const&\) const, with float of_side\(tessera::side\) const
#include <tessera/algorithm/paged_cache/cross_layer_cache.hpp>
#include <tessera/exec/cpu.hpp>

/// Keeps one length for both vectors, so that neither can be restored by its own.
struct of_one_length {
  tessera::mix_weights mix(tessera::pair_products const&) const { return {0.5F, 0.5F}; }
  float keep(tessera::pair_products const& measured) const { return static_cast<float>(measured.first); }
};

struct of_two_lengths : of_one_length {
  tessera::two_lengths<float> keep(tessera::pair_products const& measured) const {
    return {tessera::length_of(measured.first), tessera::length_of(measured.second)};
  }
};

#if defined(TESSERA_FAIL)
using merger_type = of_one_length;
#else
using merger_type = of_two_lengths;
#endif

tessera::cross_layer_cache<merger_type> make_cache(tessera::cpu const& exec) {
  return {exec, {1, 64, 1, 1, 64}, {.parts = {tessera::cross_layer_cache<merger_type>::pair()}}};
}
