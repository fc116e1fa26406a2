// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: offloaded_cache.refit finds directions of low_rank<rank> anew; other keys have none
#include <tessera/algorithm/offloaded_cache/exact_keys.hpp>
#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

#if defined(TESSERA_FAIL)
using keys = tessera::exact_keys;
#else
using keys = tessera::low_rank<16>;
#endif

using method = tessera::offloaded_cache<keys, tessera::landmark_selector<8>, tessera::keep_outliers<48>>;

void refit(method::cache_type<tessera::bfloat16> const& cache, tessera::workspace const& space) {
  method::refit(tessera::cpu{}, cache, 0, space);
}
