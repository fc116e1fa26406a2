// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/algorithm/loss/soft_target_loss.hpp>
#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "algorithm/loss/strict_executor.cuh"
#include "support/message_of.hpp"
#include "support/soft_target_reference.hpp"
#include "support/stored_classifiers.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr double narrow = 1e-5;
constexpr double rounded = 4e-3;  // gradients of bf16

template <class Source, class Filter = gradient_filter<0>>
using stored_loss =
    with_classifier<linear_loss<loss_gemm_tile<typename Source::value_type>, lse_reducer<float>, Filter>, Source>;
template <class Source, class Filter = gradient_filter<0>>
using plain_loss = linear_loss<loss_gemm_tile<typename Source::value_type>, lse_reducer<float>, Filter>;

/// A problem's inputs on the device.
template <class Source>
struct stored_on_device {
  using memory = source_memory<Source>;
  device_problem<typename Source::value_type, std::int64_t> others;
  buffer<typename memory::code_type> codes;
  buffer<typename memory::params_type> params;

  stored_on_device(cuda const& exec, stored_problem<Source> const& p)
      : others(exec, p.rounded), codes(to_device(exec, p.codes)), params(to_device(exec, p.params)) {}

  linear_loss_inputs<typename Source::value_type, std::int64_t, identity_logits, Source> inputs() const {
    auto const plain = others.inputs();
    return {plain.hidden,       memory::source(codes.data(), params.data(), others.extents[1], others.extents[2]),
            plain.labels,       plain.bias,
            plain.weights,      {},
            plain.class_weights};
  }
};

/// Both passes, `times` times, in one workspace that begins with bytes of ones.
template <class Loss, class Gradient, class Exec, class T, class Inputs>
device_results<Gradient> run_passes(Exec const& runner, loss_problem<T> const& p, Inputs const& in,
                                    bool with_bias = true, int times = 1) {
  cuda const exec;
  bool const is_reduced = p.options.reduction != loss_reduction::none;
  buffer<float> loss(exec, is_reduced ? 1 : p.tokens);
  buffer<float> lse(exec, p.tokens);
  buffer<float> log_probability(exec, p.tokens);
  std::vector<Gradient> const poison(static_cast<std::size_t>(p.vocabulary * p.channels), store<Gradient>(NAN));
  auto hidden = to_device(exec, std::vector<Gradient>(static_cast<std::size_t>(p.tokens * p.channels), poison[0]));
  auto classifier = to_device(exec, poison);
  auto bias = to_device(exec, std::vector<Gradient>(static_cast<std::size_t>(p.vocabulary), poison[0]));
  auto const plan = Loss::template plan_backward<Gradient>(runner, {p.tokens, p.vocabulary, p.channels}, p.options);
  auto memory = to_device(exec, std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}));
  workspace const space(plan, memory);
  linear_loss_gradients<Gradient> const out{{hidden.data(), {p.tokens, p.channels}},
                                            {classifier.data(), {p.vocabulary, p.channels}},
                                            with_bias ? bias.view() : array_view<Gradient>{}};
  exec.wait();
  for (int time = 0; time < times; ++time) {
    Loss::forward(runner, in, p.options,
                  {.loss = loss.view(), .log_sum_exp = lse.view(), .log_probability = log_probability.view()}, space);
    Loss::backward(runner, in, p.options, {}, out, space);
  }
  runner.wait();
  return {to_host(exec, loss),   to_host(exec, lse),        to_host(exec, log_probability),
          to_host(exec, hidden), to_host(exec, classifier), to_host(exec, bias)};
}

template <class Source, class Gradient, class Exec>
void check_stored(Exec const& exec, stored_problem<Source> const& p, double gradient_tolerance) {
  CAPTURE(p.rounded.tokens, p.rounded.vocabulary, p.rounded.channels);
  stored_on_device<Source> const in(cuda{}, p);
  auto const found = run_passes<stored_loss<Source>, Gradient>(exec, p.rounded, in.inputs());
  CHECK(wrong_losses(p.rounded, found, narrow) == 0);
  auto const expected = reference_gradient(p.rounded);
  CHECK(relative_distance(found.hidden, expected.hidden) <= gradient_tolerance);
  CHECK(relative_distance(found.classifier, expected.classifier) <= gradient_tolerance);
  CHECK(relative_distance(found.bias, expected.bias) <= 2 * gradient_tolerance);
}

template <class V>
std::vector<double> in_double(std::vector<V> const& values) {
  return doubles_of(values);
}

/// Compares with the loss of a matrix of the rounded rows, on the same executor.
template <class Source, class Filter, class Gradient, class Exec>
void check_beside_plain(Exec const& exec, stored_problem<Source> const& p, double tolerance, bool with_bias = true) {
  CAPTURE(p.rounded.tokens, p.rounded.vocabulary, p.rounded.channels, with_bias);
  stored_on_device<Source> const in(cuda{}, p);
  auto const found = run_passes<stored_loss<Source, Filter>, Gradient>(exec, p.rounded, in.inputs(), with_bias);
  auto const plain = run_passes<plain_loss<Source, Filter>, Gradient>(exec, p.rounded, in.others.inputs(), with_bias);
  CHECK(relative_distance(found.loss, in_double(plain.loss)) <= narrow);
  CHECK(relative_distance(found.log_sum_exp, in_double(plain.log_sum_exp)) <= narrow);
  CHECK(relative_distance(found.hidden, in_double(plain.hidden)) <= tolerance);
  CHECK(relative_distance(found.classifier, in_double(plain.classifier)) <= tolerance);
  if (with_bias) {
    CHECK(relative_distance(found.bias, in_double(plain.bias)) <= tolerance);
  }
}

/// Both passes of a loss of soft targets, with the classifier and other inputs that a loss of labels has.
template <class Loss, class Inputs>
device_results<float> run_targets(target_problem<bfloat16> const& p, Inputs const& given) {
  using loss = soft_target_loss<Loss>;
  cuda const exec;
  auto const runner = strict<cuda>();
  auto const& base = p.base;
  auto const entries = to_device(exec, p.entries);
  auto const entry_weights = to_device(exec, p.entry_weights);
  typename loss::template inputs<std::int32_t> const in{
      given.hidden, given.classifier, {entries.data(), {base.tokens, p.k}}, {entry_weights.data(), {base.tokens, p.k}}};
  buffer<float> value(exec, 1);
  buffer<float> hidden(exec, base.tokens * base.channels);
  buffer<float> classifier(exec, base.vocabulary * base.channels);
  auto const plan = loss::template plan_backward<float>(runner, p.shape(), base.options);
  auto memory = to_device(exec, std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}));
  workspace const space(plan, memory);
  exec.wait();
  loss::forward(runner, in, base.options, {.loss = value.view()}, space);
  loss::backward(runner, in, base.options, {},
                 linear_loss_gradients<float>{{hidden.data(), {base.tokens, base.channels}},
                                              {classifier.data(), {base.vocabulary, base.channels}}},
                 space);
  runner.wait();
  return {to_host(exec, value), {}, {}, to_host(exec, hidden), to_host(exec, classifier), {}};
}

/// Extents of no elements and of one, and around those of tiles.
std::vector<std::vector<std::int64_t>> awkward_extents() {
  return {{0, 5, 8},       {1, 1, 8},        {7, 7, 16},     {7, 129, 64},    {127, 128, 72},
          {128, 191, 56},  {129, 192, 64},   {130, 193, 64}, {255, 255, 128}, {256, 256, 64},
          {257, 257, 136}, {300, 1000, 200}, {1, 3000, 16},  {513, 2, 8}};
}

template <class Source, class Exec>
void check_awkward(Exec const& exec) {
  for (auto const& extents : awkward_extents()) {
    Exec runner = exec;
    runner.options.refuses_slower_programs = extents[0] > 0;  // without tokens there is nothing to choose
    auto const p = make_stored_problem<Source>(extents[0], extents[1], extents[2], true);
    check_stored<Source, typename Source::value_type>(runner, p, rounded);
    check_stored<Source, float>(runner, p, rounded);
  }
}

template <class V>
std::vector<int> kinds_of(std::vector<V> const& values) {
  std::vector<int> kinds;
  for (V const value : values) {
    auto const number = static_cast<float>(load(value));
    kinds.push_back(std::isnan(number) ? 2 : std::isinf(number) ? 1 : 0);
  }
  return kinds;
}

}  // namespace

TEST_CASE("on a GPU a loss of fp32 rows and bf16 hidden states is right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_awkward<master_rows>(cuda{});
  check_awkward<master_rows>(ring_executor{});
}

TEST_CASE("on a GPU a loss of fp8 rows with a scale each is right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_awkward<row_scaled<bfloat16>>(cuda{});
  check_awkward<row_scaled<bfloat16>>(ring_executor{});
}

TEST_CASE("on a GPU a loss of other pairs of types is right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using half_rows = converted<float16, bfloat16>;
  using brain_rows = converted<bfloat16, float16>;
  check_stored<half_rows, float>(strict<cuda>(), make_stored_problem<half_rows>(200, 300, 64, true), rounded);
  check_stored<brain_rows, float>(strict<cuda>(), make_stored_problem<brain_rows>(200, 300, 64, true), rounded);
  check_stored<brain_rows, float>(strict<ring_executor>(), make_stored_problem<brain_rows>(200, 300, 64, true),
                                  rounded);
  using exact_rows = converted<bfloat16, float>;
  check_stored<exact_rows, float>(cuda{}, make_stored_problem<exact_rows>(130, 129, 33, true), narrow);
}

TEST_CASE("on a GPU rows of odd lengths run by the portable program", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_stored<master_rows, float>(cuda{}, make_stored_problem<master_rows>(65, 200, 33, true), rounded);
  check_stored<row_scaled<bfloat16>, bfloat16>(cuda{}, make_stored_problem<row_scaled<bfloat16>>(65, 200, 33), rounded);
}

TEST_CASE("on a GPU a vocabulary goes through many bands", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_stored_problem<master_rows>(260, 3001, 136, true);
  weigh_classes(p.rounded);
  for (std::int64_t const budget : {std::int64_t{700} << 10, std::int64_t{1} << 20, std::int64_t{3} << 20}) {
    p.rounded.options.workspace_budget = budget;
    check_stored<master_rows, bfloat16>(strict<cuda>(), p, rounded);
    check_stored<master_rows, float>(strict<cuda>(), p, rounded);
    check_stored<master_rows, float>(strict<ring_executor>(), p, rounded);
  }
  p.rounded.options.softcap = 5.0F;
  p.rounded.options.temperature = 0.7F;
  p.rounded.options.z_factor = 1e-2F;
  p.rounded.options.shift = 1;
  p.rounded.options.reduction = loss_reduction::none;
  check_stored<master_rows, float>(strict<cuda>(), p, rounded);
  check_stored<master_rows, float>(strict<ring_executor>(), p, rounded);
}

TEST_CASE("on a GPU large problems have the results of rounded rows", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_stored_problem<master_rows>(3000, 20011, 264);
  auto codes = make_stored_problem<row_scaled<bfloat16>>(3000, 20011, 272);
  for (std::int64_t const mib : {0, 16, 48}) {
    p.rounded.options.workspace_budget = codes.rounded.options.workspace_budget = mib << 20;
    check_beside_plain<master_rows, gradient_filter<0>, bfloat16>(strict<cuda>(), p, 1e-3);
    check_beside_plain<master_rows, gradient_filter<0>, float>(strict<cuda>(), p, 1e-3);
    check_beside_plain<row_scaled<bfloat16>, gradient_filter<0>, bfloat16>(strict<cuda>(), codes, 1e-3);
    check_beside_plain<row_scaled<bfloat16>, gradient_filter<0>, float>(strict<ring_executor>(), codes, 1e-3);
  }
}

TEST_CASE("on a GPU a filtered pass takes a source's rows in the order of their use", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_stored_problem<master_rows>(1500, 12001, 136);
  for (std::int64_t entry = 0; entry < p.rounded.vocabulary; ++entry) {  // few entries have large logits
    float const scale = entry * 7919 % 12001 < 600 ? 2.5F : 0.2F;
    for (std::int64_t channel = 0; channel < 136; ++channel) {
      p.codes[static_cast<std::size_t>(entry * 136 + channel)] *= scale;
    }
  }
  p.round();
  using filter = gradient_filter<12>;
  for (std::int64_t const mib : {0, 12, 24}) {
    p.rounded.options.workspace_budget = mib << 20;
    // Which blocks reach the threshold depends on rounding, by as much as what lies at the threshold.
    check_beside_plain<master_rows, filter, bfloat16>(strict<cuda>(), p, 2e-2, false);
    check_beside_plain<master_rows, filter, float>(strict<cuda>(), p, 2e-2, true);
    check_beside_plain<master_rows, filter, float>(strict<ring_executor>(), p, 2e-2, false);
  }
}

TEST_CASE("on a GPU results of a source repeat bit for bit, also in the same workspace", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_stored_problem<master_rows>(700, 5000, 136);
  p.rounded.options.workspace_budget = std::int64_t{3} << 20;
  stored_on_device<master_rows> const in(cuda{}, p);
  using loss = stored_loss<master_rows>;
  auto const first = run_passes<loss, float>(strict<cuda>(), p.rounded, in.inputs());
  auto const again = run_passes<loss, float>(strict<cuda>(), p.rounded, in.inputs(), true, 3);
  CHECK(std::memcmp(first.log_sum_exp.data(), again.log_sum_exp.data(), 4 * first.log_sum_exp.size()) == 0);
  CHECK(std::memcmp(first.hidden.data(), again.hidden.data(), 4 * first.hidden.size()) == 0);
  CHECK(std::memcmp(first.classifier.data(), again.classifier.data(), 4 * first.classifier.size()) == 0);
}

TEST_CASE("on a GPU NaN and infinity in a source's rows do what they do in rounded rows", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const special :
       {std::numeric_limits<float>::quiet_NaN(), 3.4e38F, -std::numeric_limits<float>::infinity()}) {
    auto p = make_stored_problem<master_rows>(150, 700, 64);
    p.codes[333 * 64 + 5] = special;
    p.round();
    stored_on_device<master_rows> const in(cuda{}, p);
    auto const found = run_passes<stored_loss<master_rows>, float>(strict<cuda>(), p.rounded, in.inputs());
    auto const plain = run_passes<plain_loss<master_rows>, float>(strict<cuda>(), p.rounded, in.others.inputs());
    CHECK(kinds_of(found.log_sum_exp) == kinds_of(plain.log_sum_exp));
    CHECK(kinds_of(found.hidden) == kinds_of(plain.hidden));
    CHECK(kinds_of(found.classifier) == kinds_of(plain.classifier));
  }
}

TEST_CASE("on a GPU entropies and predictions of rows that go through bands are right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_stored_problem<master_rows>(300, 4001, 136);
  p.rounded.options.workspace_budget = std::int64_t{2} << 20;
  p.rounded.options.reduction = loss_reduction::none;
  cuda const exec;
  stored_on_device<master_rows> const in(exec, p);
  using loss = with_classifier<exact_cross_entropy_of<bfloat16, loss_statistics>, master_rows>;
  auto const expected = reference_loss(p.rounded);
  auto const check = [&](auto const& runner) {
    buffer<float> value(exec, 300);
    buffer<float> entropy(exec, 300);
    buffer<std::int32_t> prediction(exec, 300);
    auto const plan = loss::plan_forward(runner, {300, 4001, 136}, p.rounded.options);
    buffer<std::byte> memory(exec, plan.bytes());
    loss::forward(runner, in.inputs(), p.rounded.options,
                  {.loss = value.view(), .entropy = entropy.view(), .prediction = prediction.view()},
                  workspace(plan, memory));
    runner.wait();
    auto const entropies = to_host(exec, entropy);
    auto const predictions = to_host(exec, prediction);
    int wrong = 0;
    for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
      token_reference const& token = expected.tokens[i];
      wrong += token.label >= 0 && (predictions[i] != token.prediction ||
                                    std::fabs(static_cast<double>(entropies[i]) - token.entropy) > 1e-3)
                   ? 1
                   : 0;
    }
    CHECK(wrong == 0);
  };
  check(strict<cuda>());
  check(strict<ring_executor>());
}

TEST_CASE("on a GPU soft targets take a classifier that is a source", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const budget : {std::int64_t{0}, std::int64_t{4} << 20}) {
    auto const p = make_stored_problem<row_scaled<bfloat16>>(300, 3001, 136);
    auto targets = make_target_problem<bfloat16>(300, 3001, 136, 7);
    targets.base = p.rounded;
    targets.base.options.workspace_budget = budget;
    stored_on_device<row_scaled<bfloat16>> const in(cuda{}, p);
    auto const found = run_targets<stored_loss<row_scaled<bfloat16>>>(targets, in.inputs());
    auto const expected = reference_targets(targets, {});
    CHECK(static_cast<double>(found.loss[0]) == Approx(expected.total).epsilon(narrow));
    CHECK(relative_distance(found.hidden, expected.gradient.hidden) <= rounded);
    CHECK(relative_distance(found.classifier, expected.gradient.classifier) <= rounded);
  }
}

TEST_CASE("on a GPU a source in the host's memory is refused", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const p = make_stored_problem<master_rows>(20, 30, 64);
  cuda const exec;
  stored_on_device<master_rows> const in(exec, p);
  auto inputs = in.inputs();
  inputs.classifier = p.source();
  CHECK_THAT(message_of([&] { run_passes<stored_loss<master_rows>, float>(exec, p.rounded, inputs); }),
             contains("linear_loss.forward") && contains("codes of the source"));
}
