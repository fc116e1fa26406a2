// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kept softmaxes of the programs of GPUs without wgmma, on whatever GPU there is: the executor takes them for the only
// ones that this source is compiled for.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/special_values_on_device.cuh"
#include "algorithm/loss/strict_executor.cuh"
#include "support/row_states.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using loss_of_bf16 = exact_cross_entropy_of<bfloat16>;
using loss_of_fp16 = exact_cross_entropy_of<float16>;

constexpr double narrow = 1e-5;
constexpr double rounded = 4e-3;  // gradients of bf16
constexpr std::int64_t room = std::int64_t{64} << 20;

template <class Loss, class Gradient, class Problem>
workspace_plan plan_of(Problem const& p) {
  return Loss::template plan_backward<Gradient>(strict<ring_executor>(), {p.tokens, p.vocabulary, p.channels},
                                                p.options);
}
std::int64_t bytes_of_softmaxes(workspace_plan const& plan) {
  std::int64_t bytes = 0;
  for (auto const& region : plan.entries()) {
    bytes += region.name == "softmaxes" ? region.bytes : 0;
  }
  return bytes;
}
template <class Loss = loss_of_bf16, class Problem>
bool keeps_softmaxes_of(Problem const& p) {
  return bytes_of_softmaxes(plan_of<Loss, float>(p)) > 0;
}

/// A problem some of whose tokens have logits so large that their tiles share no reference.
template <class T>
loss_problem<T> uneven_problem(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels) {
  auto problem = make_loss_problem<T>(tokens, vocabulary, channels, true);
  auto const row = static_cast<std::size_t>(channels);
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); token += 3) {
    float const factor = token % 2 == 0 ? 40.0F : 0.0F;  // logits of deviation 80, or equal ones
    for (std::size_t i = token * row; i < (token + 1) * row; ++i) {
      problem.hidden[i] = store<T>(factor * load(problem.hidden[i]));
    }
  }
  loss_reference const known = reference_loss(problem);
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); token += 4) {
    problem.labels[token] = problem.labels[token] >= 0 ? known.tokens[token].prediction : problem.labels[token];
  }
  return problem;
}

}  // namespace

TEST_CASE("rings keep softmaxes of awkward extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& extents : {std::vector<std::int64_t>{1, 1, 8},
                              {7, 7, 64},
                              {7, 129, 64},
                              {127, 128, 72},
                              {128, 255, 56},
                              {129, 256, 64},
                              {130, 257, 128},
                              {300, 1000, 200},
                              {1, 3000, 16},
                              {513, 2, 8}}) {
    auto p = make_loss_problem<bfloat16>(extents[0], extents[1], extents[2], true);
    p.options.workspace_budget = room;
    REQUIRE(keeps_softmaxes_of(p));
    check_on_device<loss_of_bf16, bfloat16>(p, narrow, rounded, strict<ring_executor>());
    check_on_device<loss_of_bf16, float>(p, narrow, rounded, strict<ring_executor>());
  }
}

TEST_CASE("without tokens or without a label rings keep no softmaxes and make no gradients", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto none = make_loss_problem<bfloat16>(0, 300, 64);
  none.options.workspace_budget = room;
  CHECK(!keeps_softmaxes_of(none));
  auto p = make_loss_problem<bfloat16>(130, 300, 64);
  p.options.workspace_budget = room;
  std::fill(p.labels.begin(), p.labels.end(), -100);
  std::fill(p.hidden.begin(), p.hidden.end(), store<bfloat16>(NAN));
  auto const found = run_on_device<loss_of_bf16, float>(strict<ring_executor>(), p);
  auto const is_zero = [](float value) { return value == 0.0F; };
  CHECK(std::all_of(found.hidden.begin(), found.hidden.end(), is_zero));
  CHECK(std::all_of(found.classifier.begin(), found.classifier.end(), is_zero));
}

TEST_CASE("softmaxes kept by rings make gradients wherever labels lie among the logits of their token", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const softcap : {0.0F, 30.0F}) {
    CAPTURE(softcap);
    auto p = uneven_problem<bfloat16>(300, 2000, 72);
    p.weights[8] = 0.0F;
    p.options.softcap = softcap;
    p.options.temperature = softcap > 0.0F ? 0.7F : 1.0F;
    p.options.workspace_budget = room;
    p.options.reduction = loss_reduction::sum;
    REQUIRE(keeps_softmaxes_of(p));
    check_on_device<loss_of_bf16, bfloat16>(p, narrow, rounded, strict<ring_executor>());
    check_on_device<loss_of_bf16, float>(p, narrow, rounded, strict<ring_executor>());
    check_added_on_device<loss_of_bf16>(p, rounded, true, {}, strict<ring_executor>());
  }
}

TEST_CASE("rings keep softmaxes in fp16, whose tiles share no references", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const vocabulary : {1, 63, 64, 65, 777}) {
    auto p = make_loss_problem<float16>(200, vocabulary, 64, true);
    p.options.workspace_budget = room;
    REQUIRE(keeps_softmaxes_of<loss_of_fp16>(p));
    check_on_device<loss_of_fp16, float16>(p, narrow, 2e-3, strict<ring_executor>());
  }
  auto p = uneven_problem<float16>(200, 1000, 72);
  p.options.softcap = 30.0F;
  p.options.workspace_budget = room;
  check_on_device<loss_of_fp16, float16>(p, narrow, 2e-3, strict<ring_executor>());
}

TEST_CASE("rings keep softmaxes of Reducers whose states have room, and say when others have none", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using with_top_four = exact_cross_entropy_of<bfloat16, paired_reducer<lse_reducer<float>, top_four>>;
  using with_many_sums = exact_cross_entropy_of<bfloat16, paired_reducer<lse_reducer<float>, many_sums<50>>>;
  auto p = make_loss_problem<bfloat16>(300, 1000, 64);
  p.options.workspace_budget = room;
  CHECK(keeps_softmaxes_of<with_top_four>(p));
  CHECK(!keeps_softmaxes_of<with_many_sums>(p));  // whose forward pass is the portable one
  CHECK(!keeps_softmaxes_of<exact_cross_entropy_of<bfloat16, loss_statistics>>(p));
  check_on_device<with_top_four, bfloat16>(p, narrow, rounded, strict<ring_executor>());
}

TEST_CASE("with some softmaxes kept rings make the other logits again, and add all gradients to old ones", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_loss_problem<bfloat16>(2048, 60000, 40);
  weigh_classes(p);
  p.options.workspace_budget = std::int64_t{200} << 20;
  for (linear_loss_options const options :
       {p.options, linear_loss_options{.softcap = 3.0F, .workspace_budget = p.options.workspace_budget}}) {
    p.options = options;
    std::int64_t const kept = bytes_of_softmaxes(plan_of<loss_of_bf16, float>(p)) / (2 * p.tokens);
    REQUIRE((kept > 0 && kept < p.vocabulary));
    auto without = p;
    without.options.workspace_budget = 0;
    auto const expected = doubles_of_results(run_on_device<loss_of_bf16, float>(strict<ring_executor>(), without));
    auto const written = run_on_device<loss_of_bf16, float>(strict<ring_executor>(), p);
    auto const gradients = doubles_of_results(written);
    CHECK(relative_distance(written.hidden, expected.hidden) <= rounded);
    CHECK(relative_distance(written.classifier, expected.classifier) <= rounded);
    CHECK(relative_distance(written.bias, expected.bias) <= 2 * rounded);
    auto const narrowed = run_on_device<loss_of_bf16, bfloat16>(strict<ring_executor>(), p);
    CHECK(relative_distance(narrowed.hidden, expected.hidden) <= rounded);
    CHECK(relative_distance(narrowed.classifier, expected.classifier) <= rounded);
    auto const old = old_gradients_for(gradients);
    auto const found =
        run_on_device<loss_of_bf16, float>(strict<ring_executor>(), p, true, {}, identity_logits{}, &old);
    auto const sum = added_to(old, gradients);
    CHECK(relative_distance(found.hidden, sum.hidden) <= 1e-6);
    CHECK(relative_distance(found.classifier, sum.classifier) <= 1e-6);
    CHECK(relative_distance(found.bias, sum.bias) <= 1e-6);
    CHECK(changed_without_label(p, found.hidden, old.hidden) == 0);
  }
}

TEST_CASE("tokens without a label leave nothing in gradients of softmaxes kept by rings, those that are NaN do",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_loss_problem<bfloat16>(300, 2000, 64);
  p.options.workspace_budget = room;
  auto strange = p;
  for (std::size_t token = 0; token < 300; ++token) {
    if (p.labels[token] < 0) {
      strange.hidden[token * 64 + token % 64] = store<bfloat16>(token % 2 == 0 ? NAN : INFINITY);
      strange.hidden[token * 64 + (token + 1) % 64] = store<bfloat16>(3e38F);
    }
  }
  auto const plain = doubles_of_results(run_on_device<loss_of_bf16, float>(strict<ring_executor>(), p));
  auto const found = run_on_device<loss_of_bf16, float>(strict<ring_executor>(), strange);
  CHECK(relative_distance(found.hidden, plain.hidden) <= 1e-6);
  CHECK(relative_distance(found.classifier, plain.classifier) <= 1e-6);
  CHECK(relative_distance(found.bias, plain.bias) <= 1e-6);
  auto const row = static_cast<std::size_t>(
      std::find_if(p.labels.begin(), p.labels.end(), [](std::int64_t label) { return label >= 0; }) - p.labels.begin());
  auto broken = p;
  broken.hidden[row * 64 + 5] = store<bfloat16>(NAN);
  auto const of_nan = run_on_device<loss_of_bf16, float>(strict<ring_executor>(), broken);
  auto const is_nan = [](float value) { return std::isnan(value); };
  CHECK(std::isnan(of_nan.loss[0]));
  CHECK(std::all_of(of_nan.hidden.begin() + row * 64, of_nan.hidden.begin() + (row + 1) * 64, is_nan));
  CHECK(std::all_of(of_nan.classifier.begin(), of_nan.classifier.end(), is_nan));
}

TEST_CASE("NaNs, infinities and huge logits reach gradients of softmaxes kept by rings as on the CPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const special : {NAN, INFINITY, -INFINITY, 1e4F, -1e6F, 1e9F}) {
    CAPTURE(special);
    auto in_hidden = special_problem<bfloat16>();
    in_hidden.options.workspace_budget = room;
    auto in_classifier = in_hidden;
    auto in_bias = in_hidden;
    for (std::size_t const token : {3U, 50U, 128U, 199U}) {  // with a label or without
      in_hidden.hidden[token * 32 + token % 32] = store<bfloat16>(special);
    }
    check_kinds<loss_of_bf16>(in_hidden, true, strict<ring_executor>());
    in_classifier.classifier[77 * 32 + 4] = store<bfloat16>(special);
    check_kinds<loss_of_bf16>(in_classifier, true, strict<ring_executor>());
    in_bias.bias[300] = store<bfloat16>(special);
    check_kinds<loss_of_bf16>(in_bias, true, strict<ring_executor>());
  }
}

TEST_CASE("tiles of masked entries make no NaNs of softmaxes kept by rings", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_loss_problem<bfloat16>(200, 800, 32, true);
  for (std::size_t entry = 0; entry < 800; ++entry) {  // all logits are near -300
    p.bias[entry] = store<bfloat16>(entry >= 64 && entry < 576 ? -INFINITY : -300.0F);
  }
  for (std::int64_t& label : p.labels) {
    label = label < 0 ? label : label % 64;
  }
  p.options.workspace_budget = room;
  check_kinds<loss_of_bf16>(p, true, strict<ring_executor>());
  auto const found = run_on_device<loss_of_bf16, bfloat16>(strict<ring_executor>(), p);
  auto const expected = special_results_on_host<loss_of_bf16>(p, true);
  CHECK(relative_distance(found.hidden, in_double(expected.hidden)) <= 8e-3);  // both are rounded
  CHECK(relative_distance(found.classifier, in_double(expected.classifier)) <= 8e-3);
}

TEST_CASE("softmaxes kept by rings are used once", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  ring_executor const exec = strict<ring_executor>();
  tessera::cuda const memory_of;
  auto p = make_loss_problem<bfloat16>(300, 2000, 64);
  p.options.workspace_budget = room;
  device_problem<bfloat16, std::int64_t> const in(memory_of, p);
  auto const plan = loss_of_bf16::plan_backward<float>(exec, {300, 2000, 64}, p.options);
  buffer<std::byte> memory(memory_of, plan.bytes());
  workspace const space(plan, memory);
  buffer<float> loss(memory_of, 1);
  buffer<float> hidden(memory_of, 300 * 64);
  buffer<float> classifier(memory_of, 2000 * 64);
  linear_loss_gradients<float> const out{{hidden.data(), {300, 64}}, {classifier.data(), {2000, 64}}};
  auto const is_nan = [](float value) { return std::isnan(value); };
  loss_of_bf16::forward(exec, in.inputs(), p.options, {.loss = loss.view()}, space);
  loss_of_bf16::backward(exec, in.inputs(), p.options, {}, out, space);
  CHECK_NOTHROW(exec.wait());
  auto const once = to_host(memory_of, classifier);
  CHECK(std::none_of(once.begin(), once.end(), is_nan));
  loss_of_bf16::backward(exec, in.inputs(), p.options, {}, out, space);
  CHECK_THROWS_WITH(exec.wait(), contains("used up the softmaxes"));
  auto const twice = to_host(memory_of, classifier);
  CHECK(std::all_of(twice.begin(), twice.end(), is_nan));
}

TEST_CASE("with a budget that is a byte too small for all softmaxes rings keep fewer", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_loss_problem<bfloat16>(300, 2000, 64);
  p.options.workspace_budget = room;
  std::int64_t const whole = plan_of<loss_of_bf16, bfloat16>(p).bytes();
  for (std::int64_t const budget : {whole, whole - 1}) {
    p.options.workspace_budget = budget;
    auto const plan = plan_of<loss_of_bf16, bfloat16>(p);
    CHECK(plan.bytes() <= budget);
    CHECK((bytes_of_softmaxes(plan) >= 300 * 2000 * 2) == (budget == whole));
    check_on_device<loss_of_bf16, bfloat16>(p, narrow, rounded, strict<ring_executor>());
  }
}

TEST_CASE("in a workspace of the forward pass alone rings keep no softmaxes, and backward() refuses it", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  ring_executor const exec = strict<ring_executor>();
  tessera::cuda const memory_of;
  auto p = make_loss_problem<bfloat16>(300, 2000, 64);
  p.options.workspace_budget = room;
  device_problem<bfloat16, std::int64_t> const in(memory_of, p);
  auto const plan = loss_of_bf16::plan_backward<float>(exec, {300, 2000, 64}, p.options);
  auto const of_forward = loss_of_bf16::plan_forward(exec, {300, 2000, 64}, p.options);
  buffer<std::byte> memory(memory_of, plan.bytes());
  buffer<float> loss(memory_of, 1);
  buffer<float> hidden(memory_of, 300 * 64);
  buffer<float> classifier(memory_of, 2000 * 64);
  linear_loss_gradients<float> const out{{hidden.data(), {300, 64}}, {classifier.data(), {2000, 64}}};
  loss_of_bf16::forward(exec, in.inputs(), p.options, {.loss = loss.view()}, workspace(of_forward, memory));
  CHECK_NOTHROW(exec.wait());
  CHECK_THROWS_AS(loss_of_bf16::backward(exec, in.inputs(), p.options, {}, out, workspace(of_forward, memory)),
                  shape_error);
  loss_of_bf16::backward(exec, in.inputs(), p.options, {}, out, workspace(plan, memory));
  CHECK_THROWS_AS(exec.wait(), value_error);  // of another forward()
  auto const found = to_host(memory_of, classifier);
  CHECK(std::all_of(found.begin(), found.end(), [](float value) { return std::isnan(value); }));
}
