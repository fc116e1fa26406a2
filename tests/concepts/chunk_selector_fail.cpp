// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a ChunkSelector is a Selector, or has reduce\(keys, piece, channels, kept\)
#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/recent.hpp>

/// Keeps something of chunks but does not say how it comes about.
struct without_reduce {
  using element_type = float;
  using group_type = tessera::group_max;
  static constexpr int chunk = 8;
  std::int64_t elements(std::int64_t channels) const { return channels; }
  std::int64_t pieces(std::int64_t channels) const { return channels; }
  template <class Query>
  float score(Query const& query, float const* kept, std::int64_t, tessera::scored_chunk const&) const {
    return query(0) * kept[0];
  }
  std::int64_t budget(std::int64_t candidates) const { return candidates; }
};

#if defined(TESSERA_FAIL)
using selector = without_reduce;
#else
using selector = tessera::recent_selector<8>;
#endif

using method = tessera::offloaded_cache<tessera::low_rank<16>, selector, tessera::keep_outliers<48>>;

auto make_plan(tessera::offload_shape const& shape) {
  return method::plan<tessera::bfloat16>(tessera::cpu{}, shape);
}
