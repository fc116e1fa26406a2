// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Distillation in parts of tokens, with gradients by logits that the forward pass keeps.
#include <cstddef>
#include <cstdint>

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/map/reverse_kl.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/distillation_runs.hpp"

using namespace tessera;
using namespace tessera_test;

TEMPLATE_TEST_CASE("distillation takes every option in parts of tokens, and with gradients by logits that are kept",
                   "[host][threads][slow]", forward_kl, jensen_shannon) {
  distillation_shape const shape{530, 131, 8, 12};
  std::int64_t const kept[] = {0, 512, 530, 530};
  std::size_t which = 0;
  for (std::int64_t const budget : budgets_of_tokens<float>(shape)) {
    auto p = full_problem<float>(shape, loss_reduction::mean);
    p.options.workspace_budget = budget;
    add_biases(p);
    auto const plan = linear_distillation<float, TestType>::plan_backward(cpu{}, shape, p.options);
    CHECK(kept_tokens<float>(plan, shape) == kept[which]);
    check_distillation<TestType, float>(cpu{.threads = 2}, p, 2e-5);
    if (which == 1) {
      check_distillation<TestType, float>(testing::adversary{.seed = 6}, p, 2e-5);
      p.options.reduction = loss_reduction::none;  // of which nothing is kept
      p.upstream.resize(530, 0.25F);
      check_distillation<TestType, float>(cpu{.threads = 2}, p, 2e-5);
    }
    ++which;
  }
}

namespace {

/// A user's own divergence, reverse_kl without a mean of log-ratios.
struct unnamed_reverse_kl {
  TESSERA_FN float value(float log_p, float log_q) const { return reverse_kl{}.value(log_p, log_q); }
  TESSERA_FN float slope(float log_p, float log_q) const { return reverse_kl{}.slope(log_p, log_q); }
};

}  // namespace

TEST_CASE("gradients that are kept are rounded as those that are made again, in 16 bits, for any divergence",
          "[host][threads]") {
  distillation_shape const shape{530, 70, 8, 12};
  auto p = full_problem<bfloat16>(shape, loss_reduction::sum);
  auto half = full_problem<float16>(shape, loss_reduction::mean);
  half.upstream = {1e-6F};  // which reaches no number of 16 bits
  auto const by_formula = reference_distillation(p, divergence_kind::reverse);
  auto const of_half = reference_distillation(half, divergence_kind::forward);
  double usual = 0;
  for (std::int64_t const budget : {std::int64_t{0}, budgets_of_tokens<bfloat16>(shape)[1], std::int64_t{1} << 30}) {
    p.options.workspace_budget = half.options.workspace_budget = budget;
    cpu const exec{.threads = 2};
    auto const found = run_distillation<linear_distillation<bfloat16, unnamed_reverse_kl>, float>(exec, p);
    CHECK(worst_divergence(p, found, by_formula) <= 1e-5);
    double const error =
        relative_distance(found.classifier, by_formula.classifier) + relative_distance(found.hidden, by_formula.hidden);
    usual = budget == 0 ? error : usual;
    CHECK(error <= 1.1 * usual);
    auto const in_half = run_distillation<linear_distillation<float16>, float>(exec, half);
    CHECK(relative_distance(in_half.hidden, of_half.hidden) <= 6e-4);
    CHECK(relative_distance(in_half.classifier, of_half.classifier) <= 6e-4);
  }
}
