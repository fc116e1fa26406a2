// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a ChunkSelector is a Selector, or has element_type, elements\(channels\) and pieces\(channels\)
#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

/// Scores by a whole number, which no Selector does.
struct with_whole_scores : tessera::landmark_selector<8> {
  int score(float query, float landmark) const { return static_cast<int>(query * landmark); }
};

#if defined(TESSERA_FAIL)
using selector = with_whole_scores;
#else
using selector = tessera::landmark_selector<8>;
#endif

using method = tessera::offloaded_cache<tessera::low_rank<16>, selector, tessera::keep_outliers<48>>;

auto make_plan(tessera::offload_shape const& shape) {
  return method::plan<tessera::bfloat16>(tessera::cpu{}, shape);
}
