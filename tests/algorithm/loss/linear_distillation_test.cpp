// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/observer.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/map/reverse_kl.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/distillation_runs.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

TEMPLATE_TEST_CASE("distillation is its formula, in extents around its tiles", "[host][threads]", forward_kl,
                   reverse_kl, jensen_shannon) {
  cpu const exec{.threads = 2};
  for (distillation_shape const& shape : {distillation_shape{1, 1, 1, 1},
                                          {7, 5, 3, 9},
                                          {63, 127, 16, 8},
                                          {64, 128, 17, 24},
                                          {65, 129, 8, 16},
                                          {3, 1000, 32, 1}}) {
    check_distillation<TestType, float>(exec, make_distillation_problem<float>(shape), 2e-5);
  }
}

TEMPLATE_TEST_CASE("distillation takes every option, in several parts, on every executor", "[host][threads]",
                   forward_kl, reverse_kl, jensen_shannon) {
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    auto const p = full_problem<float>({70, 301, 24, 40}, reduction);
    check_distillation<TestType, float>(cpu{.threads = 2}, p, 2e-5);
    check_distillation<TestType, float>(testing::adversary{.seed = 5}, p, 2e-5);
  }
}

TEST_CASE("gradients of distillation from 16-bit inputs are rounded once on the way and once at the end",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  auto const p = full_problem<bfloat16>({70, 301, 24, 40}, loss_reduction::mean);
  check_distillation<forward_kl, bfloat16>(exec, p, 4e-3);
  check_distillation<jensen_shannon, float>(exec, p, 4e-3);
  auto const half = full_problem<float16>({70, 301, 24, 40}, loss_reduction::mean);
  check_distillation<reverse_kl, float16>(exec, half, 6e-4);
  check_distillation<forward_kl, float>(exec, half, 6e-4);
}

TEMPLATE_TEST_CASE("distillation takes biases of both, and gives the student's a gradient", "[host][threads]",
                   forward_kl, reverse_kl, jensen_shannon) {
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::mean}) {
    auto p = full_problem<float>({70, 301, 24, 40}, reduction);
    add_biases(p);
    check_distillation<TestType, float>(cpu{.threads = 2}, p, 2e-5);
    check_distillation<TestType, float>(testing::adversary{.seed = 8}, p, 2e-5);
    p.options.softcap = 0.0F;
    p.teacher_bias.clear();
    check_distillation<TestType, float>(cpu{.threads = 2}, p, 2e-5);
  }
  auto in_16_bits = full_problem<bfloat16>({70, 301, 24, 40}, loss_reduction::mean);
  add_biases(in_16_bits);
  check_distillation<TestType, bfloat16>(cpu{.threads = 2}, in_16_bits, 4e-3);
  auto half = full_problem<float16>({70, 301, 24, 40}, loss_reduction::mean);
  add_biases(half);
  check_distillation<TestType, float>(cpu{.threads = 2}, half, 1e-3);
}

TEST_CASE("a gradient of distillation's bias is added to what is there in fp32", "[host][threads]") {
  auto p = full_problem<float>({70, 301, 24, 40}, loss_reduction::mean);
  add_biases(p);
  using loss = linear_distillation<float>;
  auto const once = run_distillation<loss, float>(cpu{.threads = 2}, p);
  auto const twice = run_distillation<loss, float>(cpu{.threads = 2}, p, {}, 2);
  std::vector<double> doubled;
  for (float const value : once.bias) {
    doubled.push_back(2.0 * static_cast<double>(value));
  }
  CHECK(relative_distance(twice.bias, doubled) <= 1e-6);
}

TEST_CASE("small and large factors of tokens neither vanish nor overflow in fp16", "[host]") {
  for (float const upstream : {1e-6F, 1e9F}) {
    auto p = make_distillation_problem<float16>({20, 70, 16, 16});
    p.upstream = {upstream};
    check_distillation<forward_kl, float>(cpu{.threads = 1}, p, 6e-4);
  }
}

TEST_CASE("a student that is its teacher has no divergence and hardly a gradient", "[host]") {
  auto p = make_distillation_problem<float>({20, 300, 16, 16});
  p.teacher_hidden = p.hidden;
  p.teacher_classifier = p.classifier;
  auto const found = run_distillation<linear_distillation<float, forward_kl>, float>(cpu{.threads = 1}, p);
  CHECK(std::fabs(found.loss[0]) <= 1e-6F);
  for (float const value : found.hidden) {
    CHECK(std::fabs(value) <= 1e-6F);
  }
}

TEST_CASE("the betas of jensen_shannon are used", "[host]") {
  auto const p = make_distillation_problem<float>({20, 70, 16, 16});
  using loss = linear_distillation<float, jensen_shannon>;
  for (float const beta : {0.1F, 0.75F}) {
    auto const found = run_distillation<loss, float>(cpu{.threads = 1}, p, {.beta = beta});
    auto const expected = reference_distillation(p, divergence_kind::jensen_shannon, static_cast<double>(beta));
    CHECK(worst_divergence(p, found, expected) <= 1e-5);
    CHECK(relative_distance(found.hidden, expected.hidden) <= 2e-5);
  }
  CHECK(message_of([&] { run_distillation<loss, float>(cpu{}, p, {.beta = 1.0F}); }) ==
        "linear_distillation.forward: the beta of jensen_shannon is 1.000000 but must be above 0 and below 1");
}

TEST_CASE("tokens of weight 0 do not count, even with logits that overflow", "[host]") {
  std::int64_t const budget = GENERATE(std::int64_t{0}, std::int64_t{1} << 30);
  auto p = make_distillation_problem<float>({8, 70, 4, 4}, true);
  p.options.workspace_budget = budget;
  REQUIRE(p.weights[3] == 0.0F);
  for (std::size_t i = 12; i < 16; ++i) {
    p.teacher_hidden[i] = 3e38F;
  }
  auto const found = run_distillation<linear_distillation<float>, float>(cpu{.threads = 1}, p);
  auto without = p;
  for (std::size_t i = 12; i < 16; ++i) {
    without.teacher_hidden[i] = 1.0F;
  }
  auto const expected = reference_distillation(without, divergence_kind::forward);
  CHECK(std::fabs(static_cast<double>(found.loss[0]) - expected.loss) <= 1e-5);
  CHECK(relative_distance(found.hidden, expected.hidden) <= 2e-5);
  CHECK(relative_distance(found.classifier, expected.classifier) <= 2e-5);
  p.weights.assign(8, 1.0F);
  p.upstream = {0.0F};  // nor does any where the loss does not
  auto const unused = run_distillation<linear_distillation<float>, float>(cpu{.threads = 1}, p);
  CHECK(std::all_of(unused.hidden.begin(), unused.hidden.end(), [](float value) { return value == 0.0F; }));
  CHECK(std::all_of(unused.bias.begin(), unused.bias.end(), [](float value) { return value == 0.0F; }));
  p.weights.assign(8, 0.0F);  // a mean of nothing
  auto const nothing = run_distillation<linear_distillation<float>, float>(cpu{.threads = 1}, p);
  CHECK(nothing.loss[0] == 0.0F);
  for (float const value : nothing.classifier) {
    CHECK(value == 0.0F);
  }
}

TEST_CASE("a NaN among a teacher's hidden states reaches its token alone, and the classifier", "[host]") {
  auto const kept = GENERATE(false, true);
  auto p = make_distillation_problem<float>({8, 70, 4, 4});
  p.options.reduction = kept ? loss_reduction::sum : loss_reduction::none;
  p.options.workspace_budget = std::int64_t{1} << 30;
  p.teacher_hidden[5] = std::numeric_limits<float>::quiet_NaN();  // token 1
  auto const found = run_distillation<linear_distillation<float>, float>(cpu{.threads = 1}, p);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(std::isnan(found.divergence[i]) == (i == 1));
    CHECK(std::isnan(found.loss[kept ? 0 : i]) == (kept || i == 1));
    CHECK(std::isnan(found.hidden[4 * i]) == (i == 1));
  }
  CHECK(std::isnan(found.classifier[0]));
}

TEST_CASE("no tokens have a mean of 0 and a classifier's gradient of 0", "[host]") {
  auto p = make_distillation_problem<float>({0, 70, 4, 4});
  p.options.workspace_budget = GENERATE(std::int64_t{0}, std::int64_t{1} << 30);
  auto const found = run_distillation<linear_distillation<float>, float>(cpu{.threads = 1}, p);
  CHECK(found.loss[0] == 0.0F);
  for (float const value : found.classifier) {
    CHECK(value == 0.0F);
  }
}

TEST_CASE("the results do not depend on the number of threads", "[host][threads]") {
  auto const p = full_problem<bfloat16>({70, 301, 24, 40}, loss_reduction::mean);
  using loss = linear_distillation<bfloat16>;
  auto const one = run_distillation<loss, float>(cpu{.threads = 1}, p);
  auto const three = run_distillation<loss, float>(cpu{.threads = 3}, p);
  CHECK(one.loss == three.loss);
  CHECK(one.hidden == three.hidden);
  CHECK(one.classifier == three.classifier);
}

namespace {

/// One problem and memory for both passes, of which a test can change something in between.
struct two_passes {
  using loss = linear_distillation<float>;
  distillation_problem<float> p = make_distillation_problem<float>({9, 70, 4, 8}, true);
  cpu exec{.threads = 1};
  std::vector<float> value = {0.0F};
  std::vector<float> hidden = std::vector<float>(36, -7.0F);
  std::vector<float> classifier = std::vector<float>(280, -7.0F);
  buffer<std::byte> memory{exec, 1 << 20};

  /// Memory may be that of an earlier test, with what its forward pass has left.
  two_passes() { std::fill_n(memory.data(), memory.size(), std::byte{0xa5}); }

  [[nodiscard]] loss::inputs in() const {
    return {{p.hidden.data(), {p.shape.tokens, p.shape.channels}},
            {p.classifier.data(), {p.shape.vocabulary, p.shape.channels}},
            {p.teacher_hidden.data(), {p.shape.tokens, p.shape.teacher_channels}},
            {p.teacher_classifier.data(), {p.shape.vocabulary, p.shape.teacher_channels}},
            p.weights};
  }
  [[nodiscard]] workspace space() { return {loss::plan_backward<float>(exec, p.shape, p.options), memory}; }
  void forward() { loss::forward(exec, in(), p.options, {value}, space()); }
  std::string backward() {
    loss::backward(exec, in(), p.options, {},
                   linear_loss_gradients<float>{{hidden.data(), {9, 4}}, {classifier.data(), {70, 4}}}, space());
    return message_of([&] { exec.wait(); });
  }
};

}  // namespace

TEST_CASE("a backward pass of distillation refuses another forward pass, and gives NaN", "[host]") {
  for (int change = -1; change < 8; ++change) {
    two_passes passes;
    passes.p.options.workspace_budget = change == 6 ? std::int64_t{1} << 30 : 0;
    if (change >= 0) {
      passes.forward();
      CHECK(passes.backward() == "");
      CHECK(passes.backward() == "");  // again
    }
    auto& p = passes.p;
    change == 0   ? static_cast<void>(p.hidden[3] += 1.0F)
    : change == 1 ? static_cast<void>(p.teacher_hidden[3] += 1.0F)
    : change == 2 ? static_cast<void>(p.teacher_classifier[3] += 1.0F)
    : change == 3 ? static_cast<void>(p.weights[0] += 1.0F)
    : change == 4 ? static_cast<void>(p.options.temperature = 2.0F)
    : change == 5 ? static_cast<void>(p.options.teacher_softcap = 9.0F)
                  : static_cast<void>(p.options.workspace_budget ^= std::int64_t{1} << 30);  // kept, or not
    CAPTURE(change);
    CHECK_THAT(passes.backward(), contains(change < 0   ? "there is no forward() in the workspace"
                                           : change < 4 ? "had other inputs"
                                           : change < 6 ? "had other options"
                                                        : "was of another plan"));
    CHECK(std::isnan(passes.hidden[0]));
    CHECK(std::isnan(passes.classifier[279]));
  }
}

namespace {

/// Counts products of matrices, which `linear` launches.
struct matrix_product_counter : observer {
  int products = 0;

  void launched(launch const& what) override {
    products += what.program.find("gemm_tiles") != std::string_view::npos ? 1 : 0;
  }
};

}  // namespace

TEST_CASE("a gradient that is not wanted is not written, and costs no product", "[host]") {
  matrix_product_counter counter;
  two_passes passes;
  passes.exec = cpu{.threads = 1, .options = {.watched_by = &counter}};
  passes.forward();
  CHECK(counter.products == 2);  // the logits of both
  counter.products = 0;
  passes.backward();
  CHECK(counter.products == 4);  // these again, and both gradients
  auto const hidden = passes.hidden;
  auto const classifier = passes.classifier;
  using loss = two_passes::loss;
  auto const run = [&](linear_loss_gradients<float> const& out) {
    passes.hidden.assign(36, -7.0F);
    passes.classifier.assign(280, -7.0F);
    counter.products = 0;
    loss::backward(passes.exec, passes.in(), {}, {}, out, passes.space());
    return counter.products;
  };
  CHECK(run({{passes.hidden.data(), {9, 4}}}) == 3);
  CHECK(passes.hidden == hidden);
  CHECK(passes.classifier == std::vector<float>(280, -7.0F));
  CHECK(run({.classifier = {passes.classifier.data(), {70, 4}}}) == 3);
  CHECK(passes.classifier == classifier);
  CHECK(passes.hidden == std::vector<float>(36, -7.0F));
  std::vector<float> bias(70);
  CHECK(run({.bias = bias}) == 2);
  passes.p.options.workspace_budget = std::int64_t{1} << 30;  // gradients by logits are kept
  counter.products = 0;
  passes.forward();
  CHECK(counter.products == 2);
  counter.products = 0;
  CHECK(passes.backward() == "");
  CHECK(counter.products == 2);  // both gradients
  CHECK(relative_distance(passes.hidden, doubles_of(hidden)) <= 1e-5);
  CHECK(relative_distance(passes.classifier, doubles_of(classifier)) <= 1e-5);
}

TEST_CASE("gradients are added to those in fp32 that are there, where that is asked for", "[host]") {
  two_passes passes;
  passes.p = make_distillation_problem<float>({9, 300, 4, 8}, true);
  passes.classifier.assign(1200, -7.0F);
  passes.p.options.workspace_budget = 1;  // three parts
  passes.forward();
  using loss = two_passes::loss;
  auto const run = [&](bool hidden, bool classifier) {
    linear_loss_gradients<float> out{{passes.hidden.data(), {9, 4}}, {passes.classifier.data(), {300, 4}}};
    out.accumulate_hidden = hidden;
    out.accumulate_classifier = classifier;
    loss::backward(passes.exec, passes.in(), passes.p.options, {}, out, passes.space());
  };
  run(false, false);
  auto const hidden = passes.hidden;
  auto const classifier = passes.classifier;
  run(true, false);
  CHECK(passes.classifier == classifier);
  run(false, true);
  CHECK(passes.hidden == hidden);
  passes.hidden.assign(36, 0.75F);
  run(true, true);
  for (std::size_t i = 0; i < 36; ++i) {
    CHECK(std::fabs(passes.hidden[i] - (0.75F + hidden[i])) <= 1e-6F);
  }
  for (std::size_t i = 0; i < 1200; ++i) {
    CHECK(std::fabs(passes.classifier[i] - 3.0F * classifier[i]) <= 1e-6F);
  }
  CHECK(message_of([&] {
          std::vector<bfloat16> memory(360);
          linear_distillation<bfloat16>::inputs const in{
              {memory.data(), {9, 4}}, {memory.data(), {70, 4}}, {memory.data(), {9, 4}}, {memory.data(), {70, 4}}};
          linear_loss_gradients<bfloat16> out;
          out.accumulate_hidden = true;
          linear_distillation<bfloat16>::backward(passes.exec, in, {}, {}, out, passes.space());
        }) ==
        "linear_distillation.backward: gradients are to be accumulated, which needs 32 bits (float), but they have 16");
}

TEST_CASE("a workspace for the forward pass alone is smaller, and does for it", "[host]") {
  two_passes passes;
  auto& options = passes.p.options;
  options.workspace_budget = GENERATE(std::int64_t{0}, std::int64_t{1} << 30);
  auto const plan = two_passes::loss::plan_forward(passes.exec, passes.p.shape, options);
  CHECK(plan.bytes() < two_passes::loss::plan_backward<float>(passes.exec, passes.p.shape, options).bytes());
  passes.forward();
  float const expected = passes.value[0];
  passes.value[0] = NAN;
  two_passes::loss::forward(passes.exec, passes.in(), options, {passes.value}, workspace(plan, passes.memory));
  CHECK(passes.value[0] == expected);
}

TEST_CASE("distillation refuses what does not fit together, with both values", "[host]") {
  auto const of = [](auto const& change) {
    two_passes passes;
    auto in = passes.in();
    change(passes, in);
    return message_of([&] {
      two_passes::loss::forward(passes.exec, in, passes.p.options, {passes.value},
                                workspace(two_passes::loss::plan_forward(passes.exec, {9, 70, 4, 8}), passes.memory));
    });
  };
  CHECK(of([](two_passes&, auto&) {}) == "");
  CHECK(of([](two_passes& t, auto& in) {
          in.classifier = {t.p.classifier.data(), {70, 3}};
        }) == "linear_distillation.forward: the hidden states have 4 channels but the classifier has 3");
  CHECK(of([](two_passes& t, auto& in) {
          in.teacher_classifier = {t.p.classifier.data(), {70, 4}};
        }) == "linear_distillation.forward: the teacher's hidden states have 8 channels but its classifier has 4");
  CHECK(of([](two_passes& t, auto& in) {
          in.teacher_hidden = {t.p.teacher_hidden.data(), {8, 8}};
        }) == "linear_distillation.forward: the student has 9 tokens but the teacher has 8");
  CHECK(of([](two_passes& t, auto& in) {
          in.teacher_classifier = {t.p.teacher_classifier.data(), {69, 8}};
        }) == "linear_distillation.forward: the student has 70 entries but the teacher has 69");
  CHECK(of([](two_passes& t, auto& in) {
          in.weights = {t.p.weights.data(), 8};
        }) == "linear_distillation.forward: there are 8 weights but there must be 9");
  CHECK(of([](two_passes&, auto& in) {
          in.hidden = {nullptr, {9, 4}};
        }) == "linear_distillation.forward: the hidden states have no memory but 36 elements");
  CHECK(of([](two_passes& t, auto&) { t.value.resize(2); }) ==
        "linear_distillation.forward: the loss has 2 elements but needs 1");
  CHECK(of([](two_passes& t, auto&) { t.p.options.temperature = 0.0F; }) ==
        "linear_distillation.forward: the temperature is 0.000000 but must be positive and finite");
  CHECK(of([](two_passes& t, auto&) { t.p.options.temperature = 1e-39F; }) ==
        "linear_distillation.forward: the temperature is 1e-39, whose reciprocal is not finite");
  CHECK(of([](two_passes& t, auto&) { t.p.options.softcap = -1.0F; }) ==
        "linear_distillation.forward: the softcap is -1.000000 but must be finite and not negative");
  CHECK(of([](two_passes& t, auto&) { t.p.options.teacher_softcap = infinity; }) ==
        "linear_distillation.forward: the teacher's softcap is inf but must be finite and not negative");
  CHECK(of([](two_passes& t, auto&) { t.p.options.workspace_budget = -1; }) ==
        "linear_distillation.forward: the budget of the workspace is -1 bytes but must not be negative");
  CHECK_THAT(message_of([] {
               two_passes::loss::plan_backward(cpu{}, {9, 0, 4, 8});
             }),
             contains("there are 9 tokens, 0 entries, 4 channels and 8 of the teacher"));
}

TEST_CASE("the backward pass refuses gradients that do not fit, a bias and too small a workspace", "[host]") {
  two_passes passes;
  passes.forward();
  auto const of = [&](linear_loss_gradients<float> const& out, array_view<float const> upstream = {}) {
    return message_of([&] { two_passes::loss::backward(passes.exec, passes.in(), {}, upstream, out, passes.space()); });
  };
  CHECK(of({{passes.hidden.data(), {8, 4}}}) ==
        "linear_distillation.backward: the gradient of the hidden states is 8 x 4 but must be 9 x 4");
  CHECK(of({.classifier = {passes.classifier.data(), {70, 3}}}) ==
        "linear_distillation.backward: the gradient of the classifier is 70 x 3 but must be 70 x 4");
  CHECK(of({.bias = {passes.classifier.data(), 69}}) ==
        "linear_distillation.backward: there are 69 gradients of the bias but there must be 70");
  CHECK(of({.bias = {passes.classifier.data(), {70}, {0}}}) ==
        "linear_distillation.backward: the gradients of the bias have 70 elements with a stride of 0");
  CHECK(of({}, {passes.hidden.data(), 2}) ==
        "linear_distillation.backward: there are 2 upstream gradients but there must be 1");
  CHECK_THAT(message_of([&] {
               two_passes::loss::backward(
                   passes.exec, passes.in(), {}, {}, linear_loss_gradients<float>{},
                   workspace(two_passes::loss::plan_forward(passes.exec, passes.p.shape), passes.memory));
             }),
             contains("linear_distillation.backward: the workspace is of a plan of"));
}
