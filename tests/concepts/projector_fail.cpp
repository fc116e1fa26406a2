// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Projector says how many coefficients a row gets: static constexpr int rank
#include <tessera/project/low_rank.hpp>

struct without_rank {
  struct basis_type {};
  basis_type fit(float const*, std::int64_t, int) const { return {}; }
  void project(basis_type const&, float const*, float*) const {}
  void reconstruct(basis_type const&, float const*, float*) const {}
};

template <tessera::Projector P>
struct offloaded_cache {
  P projector;
};

#if defined(TESSERA_FAIL)
offloaded_cache<without_rank> cache;
#else
offloaded_cache<tessera::low_rank_projector<4>> cache;
#endif
