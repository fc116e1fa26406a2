// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/map/forward_kl.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/map/reverse_kl.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/distillation_runs.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// A user's own divergence: the sum of (q - p)^2.
struct squared_distance {
  TESSERA_FN float value(float log_p, float log_q) const {
    float const apart = tessera::exp(log_q) - tessera::exp(log_p);
    return apart * apart;
  }
  TESSERA_FN float slope(float log_p, float log_q) const {
    return tessera::exp(log_q) * 2.0F * (tessera::exp(log_q) - tessera::exp(log_p));
  }
};

cuda strict_executor() {
  cuda exec;
  exec.options.refuses_slower_programs = true;
  return exec;
}

}  // namespace

TEMPLATE_TEST_CASE("distillation on a GPU is its formula, in extents around its tiles", "[cuda]", forward_kl,
                   reverse_kl, jensen_shannon) {
  TESSERA_NEEDS_CUDA();
  for (distillation_shape const& shape : {distillation_shape{1, 1, 1, 1},
                                          {7, 5, 3, 9},
                                          {127, 129, 16, 8},
                                          {128, 128, 17, 24},
                                          {129, 1000, 72, 64},
                                          {3, 3000, 32, 1}}) {
    check_distillation<TestType, bfloat16>(cuda{}, make_distillation_problem<bfloat16>(shape), 4e-3);
  }
}

TEMPLATE_TEST_CASE("distillation on a GPU takes every option, in parts, by its fast products", "[cuda]", forward_kl,
                   reverse_kl, jensen_shannon) {
  TESSERA_NEEDS_CUDA();
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::mean}) {
    auto p = make_distillation_problem<bfloat16>({301, 1001, 136, 72}, true);
    p.options.reduction = reduction;
    p.options.temperature = 1.5F;
    p.options.softcap = 4.0F;
    p.options.teacher_softcap = 5.0F;
    p.options.workspace_budget = 1;
    p.upstream.assign(reduction == loss_reduction::none ? 301 : 1, 0.375F);
    check_distillation<TestType, bfloat16>(strict_executor(), p, 4e-3);
    check_distillation<TestType, float>(strict_executor(), p, 4e-3);
    add_biases(p);
    check_distillation<TestType, float>(strict_executor(), p, 4e-3);
  }
  distillation_shape const shape{600, 520, 72, 40};
  auto p = make_distillation_problem<bfloat16>(shape, true);
  p.options.softcap = 4.0F;
  p.upstream = {0.375F};
  add_biases(p);
  for (std::int64_t const budget : budgets_of_tokens<bfloat16>(shape)) {
    p.options.workspace_budget = budget;
    check_distillation<TestType, bfloat16>(strict_executor(), p, 4e-3);
  }
}

TEST_CASE("distillation on a GPU takes fp16 and tf32's floats", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto half = make_distillation_problem<float16>({130, 700, 64, 64});
  half.upstream = {1e-6F};
  check_distillation<forward_kl, float>(strict_executor(), half, 6e-4);
  auto single = make_distillation_problem<float>({130, 700, 64, 64});
  check_distillation<reverse_kl, float>(cuda{}, single, 2e-5);
  half.options.workspace_budget = single.options.workspace_budget = std::int64_t{1} << 30;  // gradients are kept
  check_distillation<forward_kl, float>(strict_executor(), half, 6e-4);
  check_distillation<reverse_kl, float>(cuda{}, single, 2e-5);
}

TEST_CASE("distillation on a GPU gives the same bits each time", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_distillation_problem<bfloat16>({301, 1001, 136, 72}, true);
  p.options.workspace_budget = GENERATE(std::int64_t{1}, std::int64_t{1} << 30);
  using loss = linear_distillation<bfloat16, jensen_shannon>;
  auto const first = run_distillation<loss, float>(cuda{}, p);
  for (int i = 0; i < 3; ++i) {
    auto const again = run_distillation<loss, float>(cuda{}, p);
    CHECK(again.loss == first.loss);
    CHECK(again.hidden == first.hidden);
    CHECK(again.classifier == first.classifier);
  }
}

TEST_CASE("distillation on a GPU adds gradients to those in fp32 that are there", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_distillation_problem<bfloat16>({301, 1001, 136, 72}, true);
  p.options.workspace_budget = GENERATE(std::int64_t{1}, std::int64_t{1} << 30);
  using loss = linear_distillation<bfloat16>;
  auto const once = run_distillation<loss, float>(strict_executor(), p);
  auto const twice = run_distillation<loss, float>(strict_executor(), p, {}, 2);
  auto const doubled = [](std::vector<float> const& values) {
    std::vector<double> found;
    for (float const value : values) {
      found.push_back(2.0 * static_cast<double>(value));
    }
    return found;
  };
  CHECK(relative_distance(twice.hidden, doubled(once.hidden)) <= 1e-6);
  CHECK(relative_distance(twice.classifier, doubled(once.classifier)) <= 1e-6);
  for (bool const is_hidden : {true, false}) {  // what is frozen is not written
    plain_classifier<bfloat16> const rows;
    auto const found = run_distillation<loss, float>(strict_executor(), p, {}, 1, rows, rows, given_inputs{},
                                                     {.hidden = !is_hidden, .classifier = is_hidden});
    CHECK((is_hidden ? found.classifier == once.classifier : found.hidden == once.hidden));
    auto const& frozen = is_hidden ? found.hidden : found.classifier;
    CHECK(std::all_of(frozen.begin(), frozen.end(), [](float value) { return std::isnan(value); }));
  }
}

TEST_CASE("a user's own divergence is distilled on a GPU as on a CPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_distillation_problem<bfloat16>({65, 300, 32, 40});
  using loss = linear_distillation<bfloat16, squared_distance>;
  auto const here = run_distillation<loss, float>(cpu{}, p);
  p.options.workspace_budget = GENERATE(std::int64_t{0}, std::int64_t{1} << 30);
  auto const there = run_distillation<loss, float>(cuda{}, p);
  CHECK(std::fabs(there.loss[0] - here.loss[0]) <= 1e-5F);
  CHECK(relative_distance(there.hidden, std::vector<double>(here.hidden.begin(), here.hidden.end())) <= 4e-3);
}
