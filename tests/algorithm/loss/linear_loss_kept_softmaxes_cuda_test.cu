// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/tuning/loss/part_costs.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "support/row_states.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using lse = lse_reducer<float>;
using with_prediction = paired_reducer<lse, arg_max_reducer<float>>;
using with_top_four = paired_reducer<lse, top_four>;

/// Whether the plan of a problem has room for softmaxes.
bool keeps_softmaxes_of(loss_problem<bfloat16> const& p) {
  auto const plan =
      exact_cross_entropy::plan_backward<float>(tessera::cuda{}, {p.tokens, p.vocabulary, p.channels}, p.options);
  return std::any_of(plan.entries().begin(), plan.entries().end(),
                     [](auto const& region) { return region.name == "softmaxes" && region.bytes > 0; });
}

}  // namespace

TEST_CASE("where no entropy can have a gradient softmaxes are kept on a GPU, whatever the reducer", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90; other programs have linear_loss_kept_softmaxes_by_ring_cuda_test");
  }
  auto problem = make_loss_problem<bfloat16>(300, 2000, 64);
  problem.options.workspace_budget = std::int64_t{64} << 20;
  linear_loss_shape const shape{300, 2000, 64};
  tessera::cuda const exec;
  using alias = exact_cross_entropy;
  using large = paired_reducer<lse, many_sums<99>>;
  std::int64_t const softmaxes = std::int64_t{300} * 2000 * 2;
  auto const planned = [&](auto loss) { return decltype(loss)::plan_backward(exec, shape, problem.options).bytes(); };
  auto const keeps = [&](auto loss) {
    auto const plan = decltype(loss)::plan_backward(exec, shape, problem.options);
    return std::any_of(plan.entries().begin(), plan.entries().end(),
                       [](auto const& region) { return region.name == "softmaxes" && region.bytes > 0; });
  };
  CHECK(planned(alias{}) >= softmaxes);
  CHECK(keeps(alias{}));
  CHECK(keeps(exact_cross_entropy_of<bfloat16, with_prediction>{}));
  CHECK(keeps(exact_cross_entropy_of<bfloat16, with_top_four>{}));
  CHECK(!keeps(exact_cross_entropy_of<bfloat16, loss_statistics>{}));
  CHECK(!keeps(exact_cross_entropy_of<bfloat16, large>{}));  // whose forward pass is the portable one
  check_on_device<exact_cross_entropy_of<bfloat16, with_prediction>, bfloat16>(problem, 1e-5, 4e-3);
  check_on_device<exact_cross_entropy_of<bfloat16, with_top_four>, bfloat16>(problem, 1e-5, 4e-3);
  check_on_device<exact_cross_entropy_of<bfloat16, loss_statistics>, bfloat16>(problem, 1e-5, 4e-3);
  check_on_device<exact_cross_entropy_of<bfloat16, large>, bfloat16>(problem, 1e-5, 4e-3);
}

TEST_CASE("kept softmaxes make gradients wherever labels lie among the logits of their token", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90; other programs have linear_loss_kept_softmaxes_by_ring_cuda_test");
  }
  for (float const softcap : {0.0F, 30.0F}) {
    CAPTURE(softcap);
    auto problem = make_loss_problem<bfloat16>(300, 2000, 72, true);
    for (std::size_t token = 0; token < 300; token += 3) {
      float const factor = token % 2 == 0 ? 40.0F : 0.0F;  // logits of deviation 80, or equal ones
      for (std::size_t i = token * 72; i < token * 72 + 72; ++i) {
        problem.hidden[i] = store<bfloat16>(factor * load(problem.hidden[i]));
      }
    }
    loss_reference const known = reference_loss(problem);
    for (std::size_t token = 0; token < 300; token += 4) {
      if (problem.labels[token] >= 0) {
        problem.labels[token] = known.tokens[token].prediction;
      }
    }
    problem.weights[8] = 0.0F;
    problem.options.softcap = softcap;
    problem.options.workspace_budget = std::int64_t{64} << 20;
    problem.options.reduction = loss_reduction::sum;
    CHECK(keeps_softmaxes_of(problem));
    check_on_device<exact_cross_entropy, bfloat16>(problem, 1e-5, 4e-3);
    check_on_device<exact_cross_entropy, float>(problem, 1e-5, 4e-3);
    check_added_on_device<exact_cross_entropy>(problem, 4e-3, true);
  }
}

TEST_CASE("kept softmaxes are multiplied by tiles of 256 channels, too", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90; other programs have linear_loss_kept_softmaxes_by_ring_cuda_test");
  }
  auto const check = [](std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels) {
    CAPTURE(tokens, vocabulary, channels);
    REQUIRE(multiplies_widely({tokens, channels, vocabulary}));
    auto problem = make_loss_problem<bfloat16>(tokens, vocabulary, channels);
    tessera::cuda const exec;
    auto const usual = run_on_device<exact_cross_entropy, bfloat16>(exec, problem);
    problem.options.workspace_budget = std::int64_t{64} << 20;
    REQUIRE(keeps_softmaxes_of(problem));
    auto const found = run_on_device<exact_cross_entropy, bfloat16>(exec, problem);
    CHECK(relative_distance(found.hidden, doubles_of(usual.hidden)) <= 4e-3);
    CHECK(relative_distance(found.classifier, doubles_of(usual.classifier)) <= 4e-3);
  };
  check(2000, 3001, 632);  // parts of tiles on all sides
  check(2048, 3072, 640);
}

TEST_CASE("tokens without a label leave nothing of their hidden states in gradients of kept softmaxes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90; other programs have linear_loss_kept_softmaxes_by_ring_cuda_test");
  }
  auto problem = make_loss_problem<bfloat16>(300, 2000, 64);
  problem.options.workspace_budget = std::int64_t{64} << 20;
  auto strange = problem;
  for (std::size_t token = 0; token < 300; ++token) {
    if (problem.labels[token] < 0) {
      strange.hidden[token * 64 + token % 64] = store<bfloat16>(token % 2 == 0 ? NAN : INFINITY);
      strange.hidden[token * 64 + (token + 1) % 64] = store<bfloat16>(3e38F);
    }
  }
  tessera::cuda const exec;
  auto const plain = doubles_of_results(run_on_device<exact_cross_entropy, float>(exec, problem));
  auto const found = run_on_device<exact_cross_entropy, float>(exec, strange);
  CHECK(relative_distance(found.hidden, plain.hidden) <= 1e-6);
  CHECK(relative_distance(found.classifier, plain.classifier) <= 1e-4);  // hidden states' roundings may differ
  CHECK(relative_distance(found.bias, plain.bias) <= 1e-6);
}

TEST_CASE("gradients of kept softmaxes take class weights, and are added to old ones", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90; other programs have linear_loss_kept_softmaxes_by_ring_cuda_test");
  }
  for (bool const with_all : {false, true}) {
    for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::mean}) {
      auto problem = make_loss_problem<bfloat16>(300, 2000, 72, with_all);
      weigh_classes(problem);
      problem.options.workspace_budget = std::int64_t{64} << 20;
      problem.options.reduction = reduction;
      CHECK(keeps_softmaxes_of(problem));
      check_on_device<exact_cross_entropy, bfloat16>(problem, 1e-5, 4e-3);
      check_on_device<exact_cross_entropy, float>(problem, 1e-5, 4e-3);
      check_added_on_device<exact_cross_entropy>(problem, 4e-3, true);
      check_added_on_device<exact_cross_entropy>(problem, 4e-3, false);
    }
  }
}

TEST_CASE("with some softmaxes kept the gradients of all parts are added to old ones on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90; other programs have linear_loss_kept_softmaxes_by_ring_cuda_test");
  }
  tessera::cuda const exec;
  auto problem = make_loss_problem<bfloat16>(2048, 60000, 64);
  weigh_classes(problem);
  problem.options.workspace_budget = std::int64_t{200} << 20;
  CHECK(keeps_softmaxes_of(problem));
  auto const written = run_on_device<exact_cross_entropy, float>(exec, problem);
  auto const gradients = doubles_of_results(written);
  auto const old = old_gradients_for(gradients);
  auto const found = run_on_device<exact_cross_entropy, float>(exec, problem, true, {}, identity_logits{}, &old);
  auto const sum = added_to(old, gradients);
  CHECK(found.loss == written.loss);
  CHECK(relative_distance(found.hidden, sum.hidden) <= 1e-6);
  CHECK(relative_distance(found.classifier, sum.classifier) <= 1e-6);
  CHECK(relative_distance(found.bias, sum.bias) <= 1e-6);
  CHECK(changed_without_label(problem, found.hidden, old.hidden) == 0);
}

TEST_CASE("softmaxes that are used up make gradients that accumulate NaN on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90; other programs have linear_loss_kept_softmaxes_by_ring_cuda_test");
  }
  tessera::cuda const exec;
  auto problem = make_loss_problem<bfloat16>(300, 2000, 64);
  problem.options.workspace_budget = std::int64_t{64} << 20;
  device_problem<bfloat16, std::int64_t> const in(exec, problem);
  auto const plan = exact_cross_entropy::plan_backward<float>(exec, {300, 2000, 64}, problem.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto const old = old_gradients_for(reference_gradient(problem));
  buffer<float> loss(exec, 1);
  buffer<float> hidden = to_device(exec, old.hidden);
  buffer<float> classifier = to_device(exec, old.classifier);
  linear_loss_gradients<float> const out{.hidden = {hidden.data(), {300, 64}},
                                         .classifier = {classifier.data(), {2000, 64}},
                                         .accumulate_hidden = true,
                                         .accumulate_classifier = true};
  exact_cross_entropy::forward(exec, in.inputs(), problem.options, {.loss = loss.view()}, space);
  exact_cross_entropy::backward(exec, in.inputs(), problem.options, {}, out, space);
  CHECK_NOTHROW(exec.wait());
  auto const is_nan = [](float value) { return std::isnan(value); };
  auto const once = to_host(exec, hidden);
  CHECK(std::none_of(once.begin(), once.end(), is_nan));
  exact_cross_entropy::backward(exec, in.inputs(), problem.options, {}, out, space);
  CHECK_THROWS_AS(exec.wait(), value_error);
  auto const of_classifier = to_host(exec, classifier);
  CHECK(std::all_of(of_classifier.begin(), of_classifier.end(), is_nan));
  auto const of_hidden = to_host(exec, hidden);
  CHECK(changed_without_label(problem, of_hidden, old.hidden) == 0);
  std::int64_t numbers = 0;
  for (std::size_t i = 0; i < of_hidden.size(); ++i) {
    numbers += problem.labels[i / 64] != -100 && !std::isnan(of_hidden[i]) ? 1 : 0;
  }
  CHECK(numbers == 0);
}
