// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Tuning is an empty type, because kernels are instantiated for it
#include <tessera/concepts/tuning.hpp>

struct policy {
  int rows;
  bool operator==(policy const&) const = default;
};

struct with_state {
  using policy_type = policy;
#if defined(TESSERA_FAIL)
  int rows = 64;
  constexpr policy operator()(int) const {
    return {rows};
  }
#else
  constexpr policy operator()(int) const {
    return {64};
  }
#endif
};

template <tessera::Tuning T>
struct program {};

program<with_state> chosen;
