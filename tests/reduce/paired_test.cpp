// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/sum.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a pair of reducers gives what each gives alone, however deep it is nested", "[host]") {
  using sum = sum_reducer<float>;
  using best = arg_max_reducer<float>;
  using lse = lse_reducer<float>;
  using pair = paired_reducer<paired_reducer<lse, sum>, best>;
  static_assert(has_reducer<sum, pair> && has_reducer<best, pair> && !has_reducer<sum_reducer<double>, pair>);
  static_assert(has_reducer<pair, pair> && has_reducer<paired_reducer<lse, sum>, pair>);
  pair const both;
  auto state = both.identity();
  auto other = both.identity();
  auto alone = lse{}.identity();
  for (int i = 0; i < 9; ++i) {
    float const value = i == 4 ? 3.0F : 0.5F * static_cast<float>(i % 3);
    both.push(i < 5 ? state : other, {value, i});
    push_indexed(lse{}, alone, indexed_value<float>{value, i});
  }
  both.merge(state, other);
  CHECK(state_of<best>(both, state).index == 4);
  CHECK(&state_of<pair>(both, state) == &state);
  CHECK(state_of<sum>(both, state) == 7.0F);
  CHECK(lse{}.value(state_of<lse>(both, state)) == Approx(lse{}.value(alone)));
}
