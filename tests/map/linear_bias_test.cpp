// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/map/no_bias.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

struct without_slope {
  static constexpr bool is_linear = true;
};
struct not_linear {
  static constexpr bool is_linear = false;
  float slope(std::int64_t, std::int64_t) const { return 1.0F; }
};
static_assert(LinearBias<linear_bias>);
static_assert(!LinearBias<no_bias> && !LinearBias<without_slope> && !LinearBias<not_linear>);

}  // namespace

TEST_CASE("a linear bias is the head's slope times the distance from query to key", "[map]") {
  std::vector<float> const slopes{0.5F, -2.0F};
  linear_bias const bias{slopes};
  CHECK(bias(3, 0, 10, 4) == -3.0F);
  CHECK(bias(0, 1, 10, 14) == -8.0F);
  CHECK(bias(0, 1, 7, 7) == 0.0F);
  CHECK(bias.slope(5, 1) == -2.0F);
}

TEST_CASE("attention with a linear bias is that of the formula, and refuses slopes for other heads", "[map]") {
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 70, 150, 64});
  p.options.is_causal = true;
  std::vector<float> const slopes{0.25F, 0.0625F};
  auto const found = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p, linear_bias{slopes});
  auto const expected =
      attention_by_formula(p, [&](std::int64_t, std::int64_t head, std::int64_t query, std::int64_t key) {
        return static_cast<double>(slopes[as_size(head)]) * static_cast<double>(key - query);
      });
  CHECK(error_of(found.result, expected.result).relative_l1 < 0.06);
  std::vector<float> const three(3);
  CHECK(message_of([&] { run_attention_problem<sage_attention2, bfloat16>(cpu{}, p, linear_bias{three}); }) ==
        "attention.forward: there are 3 slopes of biases for 2 query heads");
}
