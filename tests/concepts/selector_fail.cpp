// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: std::int64_t budget\(std::int64_t candidates\) const, how many of them to take
#include <tessera/select/landmark.hpp>

/// A budget that does not look at how many candidates there are.
struct with_fixed_budget {
  using landmark_type = float;
  tessera::mean_reducer<float> summary() const { return {}; }
  float landmark(tessera::counted_sum<float> const& summarised) const { return summary().value(summarised); }
  float score(float query, float landmark) const { return query * landmark; }
  std::int64_t budget() const { return 256; }
};

template <tessera::Selector S>
struct sparse_attention {
  S selector;
};

#if defined(TESSERA_FAIL)
sparse_attention<with_fixed_budget> attention;
#else
sparse_attention<tessera::landmark_selector<8>> attention;
#endif
