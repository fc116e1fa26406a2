// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a KeyStore, such as low_rank<160> or exact_keys, says what it keeps
#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/project/low_rank.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

#if defined(TESSERA_FAIL)
using keys = tessera::low_rank_projector<16>;  // a Projector says how keys are coded, not how they are kept
#else
using keys = tessera::low_rank_keys<tessera::low_rank_projector<16>>;
#endif

using method = tessera::offloaded_cache<keys, tessera::landmark_selector<8>, tessera::keep_outliers<48>>;

auto make_plan(tessera::offload_shape const& shape) {
  return method::plan<tessera::bfloat16>(tessera::cpu{}, shape);
}
