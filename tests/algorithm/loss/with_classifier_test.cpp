// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <tessera/algorithm/loss/soft_target_loss.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/comm/loopback.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/reduce/write_top_entries.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/loss_maps.hpp"
#include "support/message_of.hpp"
#include "support/soft_target_reference.hpp"
#include "support/stored_classifiers.hpp"
#include "support/top_entries.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class T, class Filter = gradient_filter<0, 64, 64>>
using small_loss = linear_loss<gemm_tile<T, shape<64, 64, 32 / static_cast<int>(sizeof(T))>>, loss_statistics, Filter>;
template <class Source, class Filter = gradient_filter<0, 64, 64>>
using stored_loss = with_classifier<small_loss<typename Source::value_type, Filter>, Source>;

/// Losses and gradients.
template <class Gradient>
struct stored_results {
  loss_results values;
  gradient_results<Gradient> gradients;
};

/// Runs both passes of a loss on given inputs.
template <class Loss, class Gradient, class Exec, class T, class Label, class Inputs>
stored_results<Gradient> run_passes(Exec const& exec, loss_problem<T, Label> const& p, Inputs const& in,
                                    upstream_samples const& upstream = {}, bool is_frozen = false) {
  Gradient const untouched = store<Gradient>(-77.0F);
  stored_results<Gradient> found{loss_results(p.tokens, p.options.reduction),
                                 {{},
                                  std::vector<Gradient>(p.hidden.size(), untouched),
                                  std::vector<Gradient>(p.classifier.size(), untouched),
                                  std::vector<Gradient>(static_cast<std::size_t>(p.vocabulary), untouched)}};
  auto const plan = Loss::template plan_backward<Gradient>(exec, {p.tokens, p.vocabulary, p.channels}, p.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  Loss::forward(exec, in, p.options, found.values.template outputs<loss_statistics>(), space);
  linear_loss_gradients<Gradient> out{{found.gradients.hidden.data(), {p.tokens, p.channels}},
                                      {found.gradients.classifier.data(), {p.vocabulary, p.channels}},
                                      found.gradients.bias};
  if (is_frozen) {
    out.classifier = {};
  }
  Loss::backward(exec, in, p.options, upstream.views(), out, space);
  exec.wait();
  return found;
}

template <class V>
bool same_bits(std::vector<V> const& a, std::vector<V> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0;
}

/// Compares with the formulas, for the rows that the source gives.
template <class Source, class Gradient = float, class Exec>
void check_stored(Exec const& exec, stored_problem<Source> const& p, double tolerance,
                  upstream_samples const& upstream = {}) {
  CAPTURE(p.rounded.tokens, p.rounded.vocabulary, p.rounded.channels);
  auto const found = run_passes<stored_loss<Source>, Gradient>(exec, p.rounded, p.inputs(), upstream);
  auto const expected = reference_loss(p.rounded);
  if (p.rounded.options.reduction != loss_reduction::none) {
    CHECK(std::fabs(static_cast<double>(found.values.loss[0]) - expected.total) <=
          1e-5 * (1 + std::fabs(expected.total)));
  }
  for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
    if (expected.tokens[i].label >= 0) {
      CHECK(static_cast<double>(found.values.log_sum_exp[i]) ==
            Approx(expected.tokens[i].log_sum_exp).epsilon(1e-5).margin(1e-5));
    }
  }
  CHECK(worst_distance(found.gradients, reference_gradient(p.rounded, upstream)) <= tolerance);
}

upstream_samples upstream_of(std::int64_t tokens, loss_reduction reduction) {
  return {operand_samples<float>(reduction == loss_reduction::none ? tokens : 1, 11),
          operand_samples<float>(tokens, 12), operand_samples<float>(tokens, 13)};
}

template <class Source>
void turn_everything_on(stored_problem<Source>& p) {
  p.rounded.options.softcap = 4.0F;
  p.rounded.options.temperature = 0.8F;
  p.rounded.options.smoothing = 0.1F;
  p.rounded.options.z_factor = 1e-2F;
  p.rounded.options.shift = 1;
  weigh_classes(p.rounded);
}

constexpr double narrow = 3e-6;
constexpr double of_bf16 = 4e-3;

}  // namespace

TEST_CASE("a loss of fp32 rows and bf16 hidden states is right, whatever the extents", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {0, 1, 7, 63, 64, 65}) {
    check_stored(exec, make_stored_problem<master_rows>(tokens, 37, 33), of_bf16);
  }
  for (std::int64_t const vocabulary : {2, 7, 63, 64, 65, 200}) {
    check_stored(exec, make_stored_problem<master_rows>(5, vocabulary, 16), of_bf16);
  }
  for (std::int64_t const channels : {1, 7, 31, 32, 33, 123}) {
    check_stored(exec, make_stored_problem<master_rows>(7, 70, channels, true), of_bf16);
    check_stored<master_rows, bfloat16>(exec, make_stored_problem<master_rows>(7, 70, channels, true), 2 * of_bf16);
  }
  check_stored(exec, make_stored_problem<master_rows>(7, 1, 5), of_bf16);
}

TEST_CASE("a loss of other pairs of types is right", "[host][threads]") {
  cpu const exec{.threads = 2};
  check_stored(exec, make_stored_problem<converted<float16, bfloat16>>(66, 130, 40, true), of_bf16);
  check_stored(exec, make_stored_problem<converted<bfloat16, float16>>(66, 130, 40, true), 1e-3);
  check_stored(exec, make_stored_problem<converted<float, float16>>(66, 130, 40, true), 1e-3);
  check_stored(exec, make_stored_problem<converted<bfloat16, float>>(66, 130, 40, true), narrow);
  check_stored(exec, make_stored_problem<converted<float8_e5m2, bfloat16>>(66, 130, 48), of_bf16);
}

TEST_CASE("a loss of fp8 rows with a scale each is right, whatever the extents", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {0, 1, 7, 64, 65}) {
    check_stored(exec, make_stored_problem<row_scaled<bfloat16>>(tokens, 67, 48), of_bf16);
  }
  for (std::int64_t const vocabulary : {2, 7, 63, 64, 65, 200}) {
    check_stored(exec, make_stored_problem<row_scaled<bfloat16>>(5, vocabulary, 16), of_bf16);
  }
  for (std::int64_t const channels : {1, 7, 15, 16, 17, 64, 200}) {
    check_stored(exec, make_stored_problem<row_scaled<bfloat16>>(7, 70, channels, true), of_bf16);
    check_stored(exec, make_stored_problem<row_scaled<float>>(7, 70, channels, true), narrow);
  }
  using eight = dequantized<symmetric_quantizer<8, 32>, bfloat16>;  // any Quantizer's codes
  check_stored(exec, make_stored_problem<eight>(66, 130, 72, true), of_bf16);
}

TEST_CASE("rows that a source gives take every option of a loss", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    auto p = make_stored_problem<converted<bfloat16, float>>(70, 101, 45, true);
    turn_everything_on(p);
    p.rounded.options.reduction = reduction;
    check_stored(exec, p, narrow, upstream_of(70, reduction));
    check_stored(testing::adversary{.seed = 5}, p, narrow, upstream_of(70, reduction));
    auto codes = make_stored_problem<row_scaled<bfloat16>>(70, 101, 45, true);
    turn_everything_on(codes);
    codes.rounded.options.reduction = reduction;
    check_stored(exec, codes, of_bf16, upstream_of(70, reduction));
  }
}

TEST_CASE("results are those of the loss of rounded rows, bit for bit", "[host][threads]") {
  cpu const exec{.threads = 2};
  auto p = make_stored_problem<master_rows>(130, 300, 40, true);
  turn_everything_on(p);
  auto const found = run_passes<stored_loss<master_rows>, float>(exec, p.rounded, p.inputs());
  auto const plain = run_passes<small_loss<bfloat16>, float>(exec, p.rounded, p.rounded.inputs());
  CHECK(same_bits(found.values.loss, plain.values.loss));
  CHECK(same_bits(found.values.entropy, plain.values.entropy));
  CHECK(found.values.prediction == plain.values.prediction);
  CHECK(same_bits(found.gradients.hidden, plain.gradients.hidden));
  CHECK(same_bits(found.gradients.classifier, plain.gradients.classifier));
  CHECK(same_bits(found.gradients.bias, plain.gradients.bias));
  using some = gradient_filter<4, 64, 64>;
  auto const filtered = run_passes<stored_loss<master_rows, some>, float>(exec, p.rounded, p.inputs());
  auto const plain_filtered = run_passes<small_loss<bfloat16, some>, float>(exec, p.rounded, p.rounded.inputs());
  CHECK(same_bits(filtered.gradients.hidden, plain_filtered.gradients.hidden));
  CHECK(same_bits(filtered.gradients.classifier, plain_filtered.gradients.classifier));
}

TEST_CASE("a backward pass of a source goes through bands, and frozen rows stay as they are", "[host][threads]") {
  cpu const exec{.threads = 2};
  auto p = make_stored_problem<master_rows>(70, 1500, 40);
  p.rounded.options.workspace_budget = std::int64_t{256} << 10;
  check_stored(exec, p, of_bf16);
  check_stored<master_rows, bfloat16>(exec, p, 2 * of_bf16);
  auto const found = run_passes<stored_loss<master_rows>, float>(exec, p.rounded, p.inputs(), {}, true);
  CHECK(relative_distance(found.gradients.hidden, reference_gradient(p.rounded).hidden) <= of_bf16);
  auto const expected = reference_loss(p.rounded);
  for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
    if (expected.tokens[i].label >= 0) {
      CHECK(found.values.prediction[i] == expected.tokens[i].prediction);
      CHECK(static_cast<double>(found.values.entropy[i]) == Approx(expected.tokens[i].entropy).epsilon(1e-4));
    }
  }
  CHECK(found.gradients.classifier == std::vector<float>(p.rounded.classifier.size(), -77.0F));
}

TEST_CASE("NaN and infinity in rows of a source do what they do in rounded rows", "[host]") {
  cpu const exec{.threads = 1};
  auto p = make_stored_problem<master_rows>(9, 70, 24);
  p.codes[5 * 24 + 3] = std::numeric_limits<float>::quiet_NaN();
  p.codes[17 * 24 + 3] = 3.4e38F;  // infinite in bf16
  p.codes[40 * 24 + 9] = -std::numeric_limits<float>::infinity();
  p.round();
  CHECK(std::isinf(static_cast<float>(load(p.rounded.classifier[17 * 24 + 3]))));
  auto const found = run_passes<stored_loss<master_rows>, float>(exec, p.rounded, p.inputs());
  auto const plain = run_passes<small_loss<bfloat16>, float>(exec, p.rounded, p.rounded.inputs());
  CHECK(std::isnan(found.values.loss[0]));
  CHECK(same_bits(found.values.log_sum_exp, plain.values.log_sum_exp));
  CHECK(same_bits(found.gradients.hidden, plain.gradients.hidden));
  CHECK(same_bits(found.gradients.classifier, plain.gradients.classifier));
  auto codes = make_stored_problem<row_scaled<bfloat16>>(9, 70, 24);
  codes.params[7].scale = std::numeric_limits<float>::quiet_NaN();
  codes.round();
  auto const scaled = run_passes<stored_loss<row_scaled<bfloat16>>, float>(exec, codes.rounded, codes.inputs());
  CHECK(std::isnan(scaled.values.loss[0]));
}

TEST_CASE("soft targets take a classifier that is a source", "[host][threads]") {
  cpu const exec{.threads = 2};
  auto const p = make_stored_problem<master_rows>(70, 150, 40, true);
  auto targets = make_target_problem<bfloat16>(70, 150, 40, 5, true);
  targets.base = p.rounded;
  using loss = soft_target_loss<stored_loss<master_rows>>;
  auto const plan = loss::plan_backward<float>(exec, targets.shape(), {});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto const plain = targets.inputs();
  loss::inputs<std::int32_t> const in{plain.hidden,        p.source(), plain.entries,
                                      plain.entry_weights, plain.bias, plain.weights};
  std::vector<float> value(1);
  std::vector<float> hidden(70 * 40);
  std::vector<float> classifier(150 * 40);
  loss::forward(exec, in, {}, {.loss = value}, space);
  loss::backward(exec, in, {}, {},
                 linear_loss_gradients<float>{{hidden.data(), {70, 40}}, {classifier.data(), {150, 40}}}, space);
  exec.wait();
  auto const expected = reference_targets(targets, {});
  CHECK(static_cast<double>(value[0]) == Approx(expected.total).epsilon(1e-5));
  CHECK(relative_distance(hidden, expected.gradient.hidden) <= of_bf16);
  CHECK(relative_distance(classifier, expected.gradient.classifier) <= of_bf16);
}

TEMPLATE_TEST_CASE("the likeliest entries of rows that a source gives are found", "[host][threads]", master_rows,
                   row_scaled<bfloat16>) {
  constexpr int k = 4;
  using finish = write_top_entries<k>;
  using loss = with_classifier<linear_loss<gemm_tile<bfloat16, shape<64, 64, 16>>, finish::reducer>, TestType>;
  auto const p = make_stored_problem<TestType>(33, 301, 24, true);
  cpu const exec{.threads = 2};
  auto const plan = loss::plan_forward(exec, {33, 301, 24});
  buffer<std::byte> memory(exec, plan.bytes());
  top_results found(33, k);
  loss_results results(33);
  loss::forward(exec, p.inputs(), {}, results.outputs<finish::reducer>(), workspace(plan, memory),
                finish{{found.entries.data(), {33, k}}, {found.log_probabilities.data(), {33, k}}});
  exec.wait();
  CHECK(wrong_top_entries(p.rounded, found, k, 1e-5, false) == 0);
}

TEST_CASE("a rank's rows may be a source", "[host][threads]") {
  cpu const exec{.threads = 2};
  auto const p = make_stored_problem<row_scaled<bfloat16>>(70, 150, 40, true);
  using loss = vocabulary_parallel<stored_loss<row_scaled<bfloat16>>>;
  loopback ranks;
  auto const plan = loss::plan_backward<float>(exec, 1, {70, 150, 40});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  std::vector<float> hidden(70 * 40);
  std::vector<float> classifier(150 * 40);
  loss::forward(exec, ranks, p.inputs(), {0, 150}, {}, {.loss = value}, space);
  loss::backward(exec, ranks, p.inputs(), {0, 150}, {}, {},
                 linear_loss_gradients<float>{{hidden.data(), {70, 40}}, {classifier.data(), {150, 40}}}, space);
  exec.wait();
  CHECK(static_cast<double>(value[0]) == Approx(reference_loss(p.rounded).total).epsilon(1e-5));
  auto const expected = reference_gradient(p.rounded);
  CHECK(relative_distance(hidden, expected.hidden) <= of_bf16);
  CHECK(relative_distance(classifier, expected.classifier) <= of_bf16);
}

TEST_CASE("a classifier that does not fit is refused, with both values", "[host]") {
  cpu const exec{.threads = 1};
  using coded = row_scaled<bfloat16>;
  using loss = stored_loss<coded>;
  auto const p = make_stored_problem<coded>(9, 70, 24);
  auto const plan = loss::plan_backward(exec, {9, 70, 24});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  auto const message = [&](auto change) {
    auto in = p.inputs();
    change(in.classifier);
    return message_of([&] { loss::forward(exec, in, {}, {.loss = value}, space); });
  };
  CHECK_THAT(
      message([](coded& rows) { rows.params.extents[0] = 69; }),
      contains("linear_loss.forward: the parameters of the codes of the classifier are 69 x 1 but must be 70 x 1"));
  CHECK_THAT(message([](coded& rows) { rows.params.extents[1] = 2; }), contains("are 70 x 2 but must be 70 x 1"));
  CHECK_THAT(message([](coded& rows) { rows.codes.extents[1] = 23; }),
             contains("the hidden states have 24 channels but the classifier has 23"));
  CHECK_THAT(message([](coded& rows) { rows.codes.data = nullptr; }), contains("codes of the source"));
  CHECK_THAT(message([](coded& rows) { rows.params.data = nullptr; }), contains("parameters of codes"));
}

TEST_CASE("a backward pass refuses another classifier, and another budget, than the forward pass had", "[host]") {
  cpu const exec{.threads = 1};
  using loss = stored_loss<master_rows>;
  auto p = make_stored_problem<master_rows>(9, 70, 24);
  linear_loss_options options;
  auto const plan = loss::plan_backward(exec, {9, 70, 24}, options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  std::vector<bfloat16> hidden(9 * 24);
  linear_loss_gradients<bfloat16> const out{{hidden.data(), {9, 24}}};
  loss::forward(exec, p.inputs(), options, {.loss = value}, space);
  loss::backward(exec, p.inputs(), options, {}, out, space);
  exec.wait();
  p.codes[100] += 1.0F;
  loss::backward(exec, p.inputs(), options, {}, out, space);
  CHECK_THROWS_AS(exec.wait(), value_error);
  CHECK(std::isnan(static_cast<float>(load(hidden[0]))));
  loss::forward(exec, p.inputs(), options, {.loss = value}, space);
  options.workspace_budget = std::int64_t{1} << 40;
  loss::backward(exec, p.inputs(), options, {}, out, space);
  CHECK_THROWS_AS(exec.wait(), value_error);
}

TEST_CASE("a band of a source's rows is part of the plan, and of the budget", "[host]") {
  cpu const exec{.threads = 1};
  using loss = with_classifier<exact_cross_entropy, master_rows>;
  linear_loss_shape const shape{8192, 256000, 2304};
  std::int64_t const band = std::int64_t{56} << 20;
  std::int64_t const forward = loss::plan_forward(exec, shape).bytes();
  CHECK(forward <= exact_cross_entropy::plan_forward(exec, shape).bytes() + band);
  CHECK(forward > band * 15 / 16);
  CHECK(loss::plan_backward(exec, shape).bytes() <= (std::int64_t{160} << 20) + band);
  linear_loss_options const little{.workspace_budget = std::int64_t{10} << 20};
  CHECK(loss::plan_backward<float>(exec, shape, little).bytes() <= little.workspace_budget);
  CHECK(loss::plan_forward(exec, shape, little).bytes() <= little.workspace_budget);
}
