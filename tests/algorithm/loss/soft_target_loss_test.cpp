// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/soft_target_loss.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/loss_maps.hpp"
#include "support/message_of.hpp"
#include "support/soft_target_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class T, class Reducer = lse_reducer<float>, class Filter = gradient_filter<0>, class Map = identity_logits>
using small_loss = linear_loss<gemm_tile<T, shape<64, 64, 32 / static_cast<int>(sizeof(T))>>, Reducer, Filter, Map>;
using all_statistics = loss_statistics;
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// Runs both passes and compares them with the formulas.
template <class Loss, class Gradient, class T, class Entry, class Map = identity_logits>
loss_results check_targets(target_problem<T, Entry> const& p, double tolerance, double gradient_tolerance,
                           upstream_samples const& upstream = {}, Map const& map = {}) {
  CAPTURE(p.base.tokens, p.base.vocabulary, p.base.channels, p.k);
  auto found = untouched_gradients<Gradient>(p);
  cpu const exec{.threads = 2};
  auto const values = run_targets_into<Loss, Gradient>(exec, p, upstream, map, found, false);
  exec.wait();
  auto const expected = reference_targets(p, upstream);
  CHECK(wrong_targets(expected, values, p.base.options.reduction != loss_reduction::none, tolerance) == 0);
  CHECK(relative_distance(found.hidden, expected.gradient.hidden) <= gradient_tolerance);
  CHECK(relative_distance(found.classifier, expected.gradient.classifier) <= gradient_tolerance);
  CHECK(relative_distance(found.bias, expected.gradient.bias) <= 2 * gradient_tolerance);
  return values;
}

upstream_samples upstream_for(std::int64_t tokens, bool is_reduced, bool with_entropies) {
  upstream_samples upstream;
  for (std::uint64_t token = 0; token < static_cast<std::uint64_t>(tokens); ++token) {
    upstream.loss.push_back(testing::uniform{-1.0, 2.0}.value(71, token));
    upstream.log_sum_exp.push_back(testing::uniform{-0.3, 0.3}.value(72, token));
    upstream.entropy.push_back(testing::uniform{-0.3, 0.3}.value(73, token));
  }
  if (is_reduced) {
    upstream.loss.assign(1, 0.75F);
  }
  if (!with_entropies) {
    upstream.entropy = std::vector<float>();
  }
  return upstream;
}

template <class V>
bool same_bits(std::vector<V> const& a, std::vector<V> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0);
}

}  // namespace

TEST_CASE("losses of soft targets and their gradients are right, whatever the extents", "[host][threads]") {
  for (std::int64_t const tokens : {0, 1, 7, 63, 64, 65}) {
    for (std::int64_t const vocabulary : {2, 7, 64, 65, 150}) {
      std::int64_t const k = (tokens + vocabulary) % 6;  // 0 to 5
      check_targets<small_loss<float>, float>(make_target_problem<float>(tokens, vocabulary, 9, k), 2e-6, 3e-6);
    }
  }
  check_targets<small_loss<float>, float>(make_target_problem<float>(70, 130, 0, 3), 2e-6, 3e-6);
  check_targets<small_loss<float>, float>(make_target_problem<float>(70, 130, 20, 65), 3e-6, 3e-6);
}

TEST_CASE("a vocabulary of one entry has losses and gradients of 0, but for rounding", "[host]") {
  auto const problem = make_target_problem<float>(65, 1, 9, 4);
  auto found = untouched_gradients<float>(problem);
  auto const values =
      run_targets_into<small_loss<float>, float>(cpu{.threads = 1}, problem, {}, identity_logits{}, found, false);
  CHECK(wrong_targets(reference_targets(problem), values, true, 1e-6) == 0);
  for (float const value : found.hidden) {
    CHECK(std::fabs(value) < 1e-7F);
  }
  CHECK(std::fabs(found.bias[0]) < 1e-6F);
}

TEST_CASE("soft targets are right for operands of 16 bits, reduced or not", "[host][threads]") {
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    auto brain = make_target_problem<bfloat16, std::int64_t>(150, 300, 40, 7, true);
    brain.base.options.reduction = reduction;
    check_targets<small_loss<bfloat16>, float>(brain, 3e-6, 3e-3);
    auto half = make_target_problem<float16>(150, 300, 40, 7, true);
    half.base.options.reduction = reduction;
    check_targets<small_loss<float16>, float>(half, 3e-6, 5e-4);
    check_targets<small_loss<float16>, float16>(half, 3e-6, 1e-3);
  }
}

TEST_CASE("soft targets go through all options, statistics and upstream gradients", "[host][threads]") {
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    auto problem = make_target_problem<float>(90, 200, 24, 6, true, -0.5);
    problem.base.options = {
        .reduction = reduction, .softcap = 3.0F, .temperature = 0.7F, .smoothing = 0.15F, .z_factor = 1e-2F};
    auto const upstream = upstream_for(90, reduction != loss_reduction::none, true);
    auto const found = check_targets<small_loss<float, all_statistics>, float>(problem, 1e-5, 1e-5, upstream);
    auto const expected = reference_targets(problem, upstream);
    int wrong = 0;
    for (std::size_t i = 0; i < 90; ++i) {
      wrong += std::fabs(static_cast<double>(found.entropy[i]) - expected.tokens[i].of.entropy) <= 1e-5 ? 0 : 1;
      wrong += found.prediction[i] == expected.tokens[i].of.prediction ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK(found.accuracy[0] == Approx(expected.correct / static_cast<double>(expected.count)));
  }
}

TEST_CASE("the heaviest entry is the one that is accurate", "[host]") {
  auto problem = make_target_problem<float>(80, 5, 24, 4);
  auto const expected = reference_targets(problem);
  REQUIRE(expected.correct > 5);
  auto found = untouched_gradients<float>(problem);
  auto const values = run_targets_into<small_loss<float, all_statistics>, float>(cpu{.threads = 1}, problem, {},
                                                                                 identity_logits{}, found, false);
  CHECK(values.accuracy[0] == Approx(expected.correct / static_cast<double>(expected.count)));
}

TEST_CASE("a map changes the logits of soft targets", "[host][threads]") {
  auto problem = make_target_problem<float>(70, 150, 24, 5, true);
  problem.base.map = in_double(curved{});
  problem.base.options.reduction = loss_reduction::none;
  using loss = small_loss<float, lse_reducer<float>, gradient_filter<0>, curved>;
  check_targets<loss, float>(problem, 3e-6, 4e-6, upstream_for(70, false, false), curved{});
}

TEST_CASE("one entry of weight 1 is a label", "[host][threads]") {
  auto const labelled = make_loss_problem<bfloat16>(150, 300, 40, true);
  target_problem<bfloat16, std::int64_t> const soft{labelled, 1, labelled.labels,
                                                    std::vector<float>(labelled.labels.size(), 1.0F)};
  cpu const exec{.threads = 2};
  auto found = untouched_gradients<float>(soft);
  auto const values = run_targets_into<small_loss<bfloat16>, float>(exec, soft, {}, identity_logits{}, found, false);
  auto const wanted = run_gradients<small_loss<bfloat16>, float>(exec, labelled);
  // The mean is by the weights of tokens in both.
  CHECK(values.loss[0] == Approx(wanted.loss[0]).epsilon(1e-6));
  CHECK(relative_distance(found.hidden, doubles_of(wanted.hidden)) <= 1e-4);
  CHECK(relative_distance(found.classifier, doubles_of(wanted.classifier)) <= 1e-4);
  CHECK(relative_distance(found.bias, doubles_of(wanted.bias)) <= 1e-4);
}

TEST_CASE("the filter keeps all blocks with an entry that has weight, and no others", "[host][threads]") {
  using loss = small_loss<float, lse_reducer<float>, gradient_filter<1, 16, 16>>;
  auto problem = make_target_problem<float>(40, 130, 16, 2);
  problem.base.options.reduction = loss_reduction::sum;
  problem.base.options.hidden_threshold = 2.0F;
  problem.base.options.classifier_threshold = 2.0F;
  for (std::size_t i = 0; i < problem.entries.size(); ++i) {  // in two columns of blocks
    problem.entries[i] = problem.entries[i] < 0 ? -1 : problem.entries[i] % 16 + (i % 4 == 0 ? 96 : 32);
    problem.entry_weights[i] += i / 2 < 16 ? 0.0F : -problem.entry_weights[i];  // a row of blocks has weights
  }
  auto found = untouched_gradients<float>(problem);
  run_targets_into<loss, float>(cpu{.threads = 2}, problem, {}, identity_logits{}, found, false);
  // The formulas, for the entries of kept blocks.
  auto const all = reference_targets(problem);
  loss_operands const of(problem.base);
  std::vector<double> classifier(problem.base.classifier.size());
  std::vector<double> hidden(problem.base.hidden.size());
  for (std::int64_t token = 0; token < 16; ++token) {
    target_token const& t = all.tokens[static_cast<std::size_t>(token)];
    for (std::int64_t entry = 0; t.counts && entry < 130; ++entry) {
      if (entry / 16 == 2 || entry / 16 == 6) {
        double const by_sum = reference_target_gradient(problem, t, token, entry, t.weight, {});
        add_row(hidden.data() + token * 16, by_sum, of.classifier.data() + entry * 16, 16);
        add_row(classifier.data() + entry * 16, by_sum, of.hidden.data() + token * 16, 16);
      }
    }
  }
  CHECK(relative_distance(found.hidden, hidden) <= 3e-6);
  CHECK(relative_distance(found.classifier, classifier) <= 3e-6);
  CHECK(relative_distance(found.bias, all.gradient.bias) <= 3e-6);
}

TEST_CASE("a filtered loss of soft targets is near the exact one, also in several parts", "[host][threads]") {
  auto problem = make_target_problem<bfloat16>(200, 1500, 40, 8);
  problem.base.options.workspace_budget = std::int64_t{1} << 20;
  check_targets<small_loss<bfloat16, lse_reducer<float>, gradient_filter_for<bfloat16>>, bfloat16>(problem, 3e-6, 8e-3);
  check_targets<cut_cross_entropy, bfloat16>(problem, 3e-6, 8e-3);
}

TEST_CASE("weights of both signs keep gradients by logits within the range of fp16", "[host][threads]") {
  auto problem = make_target_problem<float16>(100, 200, 24, 6, true);
  problem.base.options.reduction = loss_reduction::none;
  for (std::size_t i = 0; i < problem.entry_weights.size(); ++i) {
    problem.entry_weights[i] = (i % 2 == 0 ? 1.0F : -1.0F) * (1000.0F + static_cast<float>(i % 7));
  }
  check_targets<small_loss<float16>, float>(problem, 1e-5, 1e-3);
}

TEST_CASE("an entry that is none of the vocabulary is reported, and spoils its own token alone", "[host]") {
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::mean}) {
    auto problem = make_target_problem<float, std::int64_t>(70, 150, 24, 4);
    problem.base.options.reduction = reduction;
    problem.entries[20 * 4 + 2] = 150;
    problem.entries[50 * 4 + 1] = std::int64_t{1} << 40;
    cpu const exec{.threads = 1};
    auto found = untouched_gradients<float>(problem);
    auto const values =
        run_targets_into<small_loss<float, all_statistics>, float>(exec, problem, {}, identity_logits{}, found, false);
    CHECK(message_of([&] { exec.wait(); }) ==
          "soft_target_loss.forward: entry 150 at position 82 of the chosen ones is none of 150");
    for (std::size_t const token : {20U, 50U}) {
      CHECK(std::isnan(values.log_sum_exp[token]));
      CHECK(std::isnan(values.log_probability[token]));
      CHECK(std::isnan(values.entropy[token]));
      CHECK(values.prediction[token] == -1);
      CHECK((reduction != loss_reduction::none || std::isnan(values.loss[token])));
    }
    CHECK((reduction == loss_reduction::none || std::isnan(values.loss[0])));
    auto without = problem;
    for (std::size_t i = 0; i < 4; ++i) {
      without.entries[80 + i] = without.entries[200 + i] = -1;
    }
    auto const expected = reference_targets(without);
    CHECK(values.count[0] == expected.count);
    CHECK(relative_distance(found.hidden, expected.gradient.hidden) <= 3e-6);
    CHECK(relative_distance(found.classifier, expected.gradient.classifier) <= 3e-6);
  }
}

TEST_CASE("ignore_index is none, also where it is an entry of the vocabulary", "[host]") {
  auto problem = make_target_problem<float>(70, 20, 24, 4);
  problem.base.options.ignore_index = 3;
  check_targets<small_loss<float>, float>(problem, 3e-6, 3e-6);
}

TEST_CASE("weights that are not finite spoil the loss and the gradients of their own token", "[host]") {
  for (float const bad : {not_a_number, std::numeric_limits<float>::infinity()}) {
    auto problem = make_target_problem<float>(70, 150, 24, 4);
    problem.base.options.reduction = loss_reduction::none;
    problem.entries[20 * 4 + 1] = 9;
    problem.entry_weights[20 * 4 + 1] = bad;
    problem.entries[40 * 4 + 1] = -100;
    problem.entry_weights[40 * 4 + 1] = bad;  // of no entry
    auto found = untouched_gradients<float>(problem);
    cpu const exec{.threads = 1};
    auto const values = run_targets_into<small_loss<float>, float>(exec, problem, {}, identity_logits{}, found, false);
    auto without = problem;
    for (std::size_t i = 0; i < 4; ++i) {
      without.entries[80 + i] = -1;
    }
    auto const expected = reference_targets(without);
    int wrong = 0;
    for (std::size_t token = 0; token < 70; ++token) {
      bool const is_near = std::fabs(static_cast<double>(values.loss[token]) - expected.tokens[token].of.loss) <= 1e-5;
      wrong += token == 20 ? std::isfinite(values.loss[token]) : !is_near;
      for (std::size_t c = 0; c < 24; ++c) {
        double const difference =
            static_cast<double>(found.hidden[token * 24 + c]) - expected.gradient.hidden[token * 24 + c];
        wrong += token == 20 ? !std::isnan(found.hidden[token * 24 + c]) : !(std::fabs(difference) <= 1e-5);
      }
    }
    CHECK(wrong == 0);
    for (float const value : found.classifier) {
      wrong += std::isfinite(value) ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a masked entry of weight 0 counts nothing, one with weight makes the loss infinite", "[host]") {
  auto problem = make_target_problem<float>(10, 50, 24, 3, true);
  problem.base.options.reduction = loss_reduction::none;
  problem.base.bias[7] = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < problem.entries.size(); ++i) {
    problem.entries[i] = i % 3 == 0 ? 7 : static_cast<std::int32_t>(8 + i);
    problem.entry_weights[i] = i % 3 == 0 ? 0.0F : 0.5F;
  }
  check_targets<small_loss<float>, float>(problem, 3e-6, 3e-6);
  problem.entry_weights[12] = 0.25F;
  auto found = untouched_gradients<float>(problem);
  auto const values =
      run_targets_into<small_loss<float>, float>(cpu{.threads = 1}, problem, {}, identity_logits{}, found, false);
  CHECK(values.loss[4] == std::numeric_limits<float>::infinity());
  CHECK(std::isfinite(values.loss[3]));
}

TEST_CASE("gradients of soft targets are added to old ones, and repeat bit for bit", "[host][threads]") {
  auto problem = make_target_problem<bfloat16>(150, 300, 40, 7, true);
  auto const expected = reference_targets(problem).gradient;
  auto const old = old_gradients_for(expected);
  auto found = old;
  cpu const exec{.threads = 2};
  run_targets_into<small_loss<bfloat16>, float>(exec, problem, {}, identity_logits{}, found, true, 2);
  auto sum = added_to(old, expected);
  for (auto const member : {&gradient_reference::hidden, &gradient_reference::classifier, &gradient_reference::bias}) {
    for (std::size_t i = 0; i < (sum.*member).size(); ++i) {
      (sum.*member)[i] += (expected.*member)[i];
    }
  }
  CHECK(relative_distance(found.hidden, sum.hidden) <= 3e-3);
  CHECK(relative_distance(found.classifier, sum.classifier) <= 3e-3);
  CHECK(relative_distance(found.bias, sum.bias) <= 6e-3);
  auto one = untouched_gradients<bfloat16>(problem);
  auto other = untouched_gradients<bfloat16>(problem);
  run_targets_into<small_loss<bfloat16>, bfloat16>(exec, problem, {}, identity_logits{}, one, false);
  run_targets_into<small_loss<bfloat16>, bfloat16>(testing::adversary{.seed = 5}, problem, {}, identity_logits{}, other,
                                                   false, 2);
  CHECK(same_bits(one.hidden, other.hidden));
  CHECK(same_bits(one.classifier, other.classifier));
  CHECK(same_bits(one.bias, other.bias));
  for (bool const is_hidden : {true, false}) {  // what is frozen has no memory, and changes nothing else
    auto frozen = untouched_gradients<bfloat16>(problem);
    (is_hidden ? frozen.hidden : frozen.classifier) = std::vector<bfloat16>();
    run_targets_into<small_loss<bfloat16>, bfloat16>(exec, problem, {}, identity_logits{}, frozen, false);
    CHECK((is_hidden ? same_bits(frozen.classifier, one.classifier) : same_bits(frozen.hidden, one.hidden)));
    CHECK(same_bits(frozen.bias, one.bias));
  }
}

TEST_CASE("targets of a backward pass are those of its forward pass", "[host]") {
  using loss = soft_target_loss<small_loss<float>>;
  auto const problem = make_target_problem<float>(30, 60, 16, 3, true);
  cpu const exec{.threads = 1};
  auto const plan = loss::plan_backward(exec, problem.shape());
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  std::vector<float> hidden(30 * 16);
  linear_loss_gradients<float> const out{.hidden = {hidden.data(), {30, 16}}};
  auto const message_with = [&](target_problem<float> const& other, linear_loss_options const& options) {
    loss::forward(exec, problem.inputs(), {}, {.loss = value}, space);
    loss::backward(exec, other.inputs(), options, {}, out, space);
    std::string const message = message_of([&] { exec.wait(); });
    CHECK((message.empty() || std::isnan(hidden[0])));
    loss::forward(exec, problem.inputs(), {}, {.loss = value}, space);
    loss::backward(exec, problem.inputs(), {}, {}, out, space);
    loss::backward(exec, problem.inputs(), {}, {}, out, space);
    exec.wait();
    return message;
  };
  std::string const differ =
      "linear_loss.backward: the forward() in the workspace had other inputs than this backward()";
  CHECK(message_with(problem, {}) == "");
  auto other = problem;
  other.entries[40] = (other.entries[40] + 1) % 60;
  CHECK(message_with(other, {}) == differ);
  other = problem;
  other.entry_weights[40] += 1.0F;
  CHECK(message_with(other, {}) == differ);
  other = problem;
  other.base.weights[4] += 1.0F;
  CHECK(message_with(other, {}) == differ);
  CHECK(message_with(problem, {.reduction = loss_reduction::sum}) == differ);
  CHECK(message_with(problem, {.ignore_index = 5}) == differ);
  CHECK(message_with(problem, {.temperature = 2.0F}) ==
        "linear_loss.backward: the forward() in the workspace had other options than this backward()");
}

TEST_CASE("soft targets that do not fit are refused with both values", "[host]") {
  using loss = soft_target_loss<small_loss<float>>;
  auto const problem = make_target_problem<float>(30, 60, 16, 3, true);
  cpu const exec{.threads = 1};
  auto const plan = loss::plan_backward(exec, problem.shape());
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  auto const forward = [&](soft_target_inputs<float, std::int32_t> const& in, linear_loss_options const& options = {}) {
    return message_of([&] { loss::forward(exec, in, options, {.loss = value}, space); });
  };
  auto in = problem.inputs();
  in.entries.extents[0] = 29;
  CHECK(forward(in) == "soft_target_loss.forward: there are entries of 29 tokens but hidden states of 30");
  in = problem.inputs();
  in.entry_weights.extents[1] = 2;
  CHECK(forward(in) == "soft_target_loss.forward: the weights of entries are 30 x 2 but the entries 30 x 3");
  in = problem.inputs();
  in.classifier.extents[1] = 15;
  CHECK(forward(in) == "soft_target_loss.forward: the hidden states have 16 channels but the classifier has 15");
  in = problem.inputs();
  in.weights.extents[0] = 7;
  CHECK(forward(in) == "soft_target_loss.forward: there are 7 weights but 30 tokens");
  in = problem.inputs();
  in.bias.extents[0] = 7;
  CHECK(forward(in) == "soft_target_loss.forward: the bias has 7 values but the vocabulary has 60");
  in = problem.inputs();
  in.entry_weights.data = nullptr;
  CHECK(forward(in).find("soft_target_loss.forward: ") == 0);
  in = problem.inputs();
  CHECK(forward(in, {.shift = 2}) ==
        "soft_target_loss.forward: the shift is 2 but must be 0: entries are a token's own");
  CHECK(forward(in, {.smoothing = 0.1F}) ==
        "soft_target_loss.forward: the smoothing is 0.100000 but the reducer has no sum_reducer<float>");
  CHECK(message_of([&] {
          loss::plan_backward(exec, {30, 60, 16, -1});
        }) == "soft_target_loss.backward: a token has -1 entries but must have 0 to 2147483647");
  CHECK(message_of([&] {
          loss::plan_backward(exec, {30, 60, 16, 3}, {.workspace_budget = 1000});
        }).find("soft_target_loss.backward: the workspace needs more than ") == 0);
  auto const small = loss::plan_forward(exec, {3, 60, 16, 3});
  workspace const small_space(small, memory);
  CHECK(message_of([&] { loss::forward(exec, problem.inputs(), {}, {.loss = value}, small_space); }).size() > 0);
  CHECK(message_of([&] {
          linear_loss_gradients<float> const out{.hidden = {value.data(), {1, 1}}};
          loss::backward(exec, problem.inputs(), {}, {}, out, space);
        }).find("linear_loss.backward: the gradient of the hidden states is 1 x 1") == 0);
}

TEST_CASE("a forward pass of soft targets alone has a smaller workspace", "[host]") {
  using loss = soft_target_loss<small_loss<float>>;
  auto const problem = make_target_problem<float>(30, 60, 16, 3, true);
  cpu const exec{.threads = 1};
  auto const plan = loss::plan_forward(exec, problem.shape());
  CHECK(plan.bytes() < loss::plan_backward(exec, problem.shape()).bytes());
  buffer<std::byte> memory(exec, plan.bytes());
  loss_results results(30);
  loss::forward(exec, problem.inputs(), {}, results.outputs<lse_reducer<float>>(), workspace(plan, memory));
  CHECK(wrong_targets(reference_targets(problem), results, true, 3e-6) == 0);
}
