// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Projector says how many coefficients a row gets: static constexpr int rank
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/project/low_rank.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

struct without_rank {
  struct basis_type {};
  basis_type fit(float const*, std::int64_t, int) const { return {}; }
  void project(basis_type const&, float const*, float*) const {}
  void reconstruct(basis_type const&, float const*, float*) const {}
};

#if defined(TESSERA_FAIL)
using keys = without_rank;
#else
using keys = tessera::low_rank_projector<4>;
#endif

using method =
    tessera::offloaded_cache<tessera::low_rank_keys<keys>, tessera::landmark_selector<8>, tessera::keep_outliers<48>>;

auto make_plan(tessera::offload_shape const& shape) {
  return method::plan<tessera::bfloat16>(tessera::cpu{}, shape);
}
