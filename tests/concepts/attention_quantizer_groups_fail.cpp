// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: groups of tokens have static std::int64_t group_of\(std::int64_t token\)
#include <cstdint>

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

/// Does not say which tokens share a scale.
struct only_a_number {
  static constexpr bool is_whole = false;
  static constexpr std::int64_t count(std::int64_t tokens) { return tokens; }
};

template <class Tokens>
struct codes : tessera::symmetric_quantizer<8, 64> {
  struct granularity_type {
    using queries = Tokens;
    using keys = Tokens;
  };
};

template <class Tokens>
tessera::workspace_plan plan_for(tessera::attention_shape const& shape) {
  return tessera::attention<codes<Tokens>, tessera::symmetric_quantizer<8>>::plan_forward(tessera::cpu{}, shape);
}

tessera::workspace_plan make_plan(tessera::attention_shape const& shape) {
#if defined(TESSERA_FAIL)
  return plan_for<only_a_number>(shape);
#else
  return plan_for<tessera::token_groups<1>>(shape);
#endif
}
