// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/reduce_logits.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/loss/small_logits.hpp"
#include "support/catch.hpp"

using namespace tessera;
using tessera_test::small_logits;

namespace {

using lse = lse_reducer<float>;
using likeliest = arg_max_reducer<float>;
using both = paired_reducer<lse, likeliest>;

/// How many rows have a wrong log-sum-exp, likeliest entry or logit of their label.
template <class Executor>
int wrong_rows(Executor const& exec, small_logits& problem, std::int64_t splits) {
  auto const tokens = static_cast<std::size_t>(problem.tokens);
  both const reducer{};
  std::vector<both::state_type> states(static_cast<std::size_t>(splits) * tokens);
  std::vector<float> targets(tokens, -777.0F);
  loss_tiles<tessera_test::small_logit_tile, both> const program{
      problem.logits(), problem.list(), reducer, {states.data(), {splits, problem.tokens}}, targets, splits};
  exec.run(program, program.groups());
  int wrong = 0;
  for (std::int64_t row = 0; row < problem.tokens; ++row) {
    auto const at = static_cast<std::size_t>(row);
    if (row >= problem.count[0]) {
      wrong += targets[at] == -777.0F ? 0 : 1;
      continue;
    }
    both::state_type state = states[at];
    for (std::size_t split = 1; split < static_cast<std::size_t>(splits); ++split) {
      reducer.merge(state, states[split * tokens + at]);
    }
    std::int64_t best = 0;
    for (std::int64_t entry = 1; entry < problem.vocabulary; ++entry) {
      best = problem.logit(row, entry) > problem.logit(row, best) + 1e-9 ? entry : best;
    }
    auto const found = static_cast<double>(lse{}.value(state_of<lse>(reducer, state)));
    wrong += std::fabs(found - problem.log_sum_exp(row)) <= 2e-5 ? 0 : 1;
    wrong += state_of<likeliest>(reducer, state).index == best ? 0 : 1;
    wrong += std::fabs(static_cast<double>(targets[at]) - problem.logit(row, problem.labels[at])) <= 2e-5 ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("rows of logits are reduced without being stored, in any number of splits", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {1, 7, 85, 86, 87}) {  // three in four have a label: 64 rows of the 85
    for (std::int64_t const vocabulary : {1, 63, 65, 200}) {
      CAPTURE(tokens, vocabulary);
      small_logits problem(tokens, vocabulary, 20);
      CHECK(wrong_rows(exec, problem, 1) == 0);
      problem.bend(4.0F, 0.8F);
      CHECK(wrong_rows(exec, problem, 3) == 0);
    }
  }
}

TEST_CASE("reducing logits keeps the rules for programs", "[host]") {
  small_logits problem(10, 70, 8);
  CHECK(wrong_rows(testing::adversary{.seed = 6}, problem, 2) == 0);
}
