// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>

#include "support/catch.hpp"
#include "support/loss_reference.hpp"
#include "support/message_of.hpp"
#include "support/row_states.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using all_statistics =
    paired_reducer<entropy_reducer<float>, paired_reducer<arg_max_reducer<float>, sum_reducer<float>>>;
template <class T, class Reducer = lse_reducer<float>>
using small_loss = linear_loss<gemm_tile<T, shape<64, 64, 32 / static_cast<int>(sizeof(T))>>, Reducer>;

bool is_near(double found, double expected, double tolerance) {
  return std::fabs(found - expected) <= tolerance * (1.0 + std::fabs(expected));
}

/// How many values are wrong.
template <class Reducer, class T, class Label>
std::int64_t wrong_results(loss_problem<T, Label> const& p, loss_results const& found, double tolerance = 4e-6) {
  loss_reference const expected = reference_loss(p);
  std::int64_t wrong = found.count[0] == expected.count ? 0 : 1;
  bool const is_reduced = p.options.reduction != loss_reduction::none;
  if (is_reduced) {
    wrong += is_near(static_cast<double>(found.loss[0]), expected.total, tolerance) ? 0 : 1;
  }
  for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
    token_reference const& token = expected.tokens[i];
    wrong += is_near(static_cast<double>(found.log_sum_exp[i]), token.log_sum_exp, tolerance) ? 0 : 1;
    wrong += is_near(static_cast<double>(found.log_probability[i]), token.log_probability, tolerance) ? 0 : 1;
    wrong += is_reduced || is_near(static_cast<double>(found.loss[i]), token.loss, tolerance) ? 0 : 1;
    if constexpr (has_reducer<entropy_reducer<float>, Reducer>) {
      wrong += is_near(static_cast<double>(found.entropy[i]), token.entropy, tolerance) ? 0 : 1;
    }
    if constexpr (has_reducer<arg_max_reducer<float>, Reducer>) {
      wrong += found.prediction[i] == token.prediction ? 0 : 1;
    }
  }
  if constexpr (has_reducer<arg_max_reducer<float>, Reducer>) {
    double const accuracy = expected.count > 0 ? expected.correct / static_cast<double>(expected.count) : 0.0;
    wrong += is_near(static_cast<double>(found.accuracy[0]), accuracy, 1e-6) ? 0 : 1;
  }
  return wrong;
}

template <class T, class Reducer, class Executor, class Label>
void check_loss(Executor const& exec, loss_problem<T, Label> const& p) {
  CAPTURE(p.tokens, p.vocabulary, p.channels);
  auto const found = run_loss<small_loss<T, Reducer>, Reducer>(exec, p);
  exec.wait();
  CHECK(wrong_results<Reducer>(p, found) == 0);
}

}  // namespace

TEST_CASE("the loss is right, whatever the extents", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {0, 1, 63, 64, 65, 130}) {
    check_loss<bfloat16, lse_reducer<float>>(exec, make_loss_problem<bfloat16>(tokens, 37, 33));
  }
  for (std::int64_t const vocabulary : {1, 2, 31, 32, 33, 63, 64, 65, 507}) {
    check_loss<bfloat16, all_statistics>(exec, make_loss_problem<bfloat16>(5, vocabulary, 16));
  }
  for (std::int64_t const channels : {0, 1, 7, 8, 31, 32, 33, 123, 500}) {
    check_loss<bfloat16, lse_reducer<float>>(exec, make_loss_problem<bfloat16>(7, 70, channels, true));
  }
}

TEST_CASE("a loss knows fp32, tf32 and fp16, labels of 32 bits, and every reducer", "[host][threads]") {
  cpu const exec{.threads = 2};
  check_loss<float, all_statistics>(exec, make_loss_problem<float, std::int32_t>(70, 100, 40, true));
  check_loss<float16, paired_reducer<lse_reducer<float>, arg_max_reducer<float>>>(
      exec, make_loss_problem<float16, std::int32_t>(70, 100, 40, true));
  check_loss<float16, entropy_reducer<float>>(exec, make_loss_problem<float16>(20, 100, 40));
  auto const problem = make_loss_problem<float>(9, 100, 64);
  using loss = linear_loss<gemm_tile<tf32, shape<128, 128, 8>>>;
  CHECK(wrong_results<lse_reducer<float>>(problem, run_loss<loss, lse_reducer<float>>(exec, problem), 4e-3) == 0);
}

TEST_CASE("a reducer without a log-sum-exp of its own runs beside one", "[host][threads]") {
  using with_prediction = paired_reducer<lse_reducer<float>, arg_max_reducer<float>>;
  CHECK(std::is_same_v<small_loss<float, arg_max_reducer<float>>::reducer_type, with_prediction>);
  CHECK(std::is_same_v<small_loss<float, all_statistics>::reducer_type, all_statistics>);
  cpu const exec{.threads = 2};
  auto problem = make_loss_problem<float>(70, 131, 24);
  check_loss<float, arg_max_reducer<float>>(exec, problem);
  check_loss<float, top_four>(exec, problem);
  problem.options.smoothing = 0.2F;
  check_loss<float, sum_reducer<float>>(exec, problem);
}

TEST_CASE("a user's own reducer runs beside the loss, and its states reach the user", "[host][threads]") {
  struct keep_states {
    array_view<top_four::state_type> states;
    array_view<std::int64_t> rows;
    TESSERA_FN void operator()(std::int64_t row, std::int64_t token, top_four::state_type const& state) const {
      states[token] = state;
      rows[token] = row;
    }
  };
  auto problem = make_loss_problem<float>(70, 131, 24);
  using loss = small_loss<float, top_four>;
  cpu const exec{.threads = 2};
  loss_results results(problem.tokens, problem.options.reduction);
  auto const plan = loss::plan_forward(exec, {problem.tokens, problem.vocabulary, problem.channels});
  buffer<std::byte> memory(exec, plan.bytes());
  std::vector<top_four::state_type> states(70, top_four::state_type{{}, -1, -1});
  std::vector<std::int64_t> rows(70, -1);
  loss::forward(exec, problem.inputs(), problem.options, results.outputs<lse_reducer<float>>(), workspace(plan, memory),
                keep_states{states, rows});
  exec.wait();
  CHECK(wrong_results<lse_reducer<float>>(problem, results) == 0);
  loss_operands const operands(problem);
  std::int64_t labelled = 0;
  std::int64_t wrong = 0;
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    auto const at = static_cast<std::size_t>(token);
    if (reference_label(problem, token) < 0) {
      wrong += rows[at] == -1 && states[at].count == -1 ? 0 : 1;
      continue;
    }
    wrong += rows[at] == labelled++ ? 0 : 1;
    wrong += states[at].count == problem.vocabulary ? 0 : 1;
    std::vector<double> logits = reference_token(problem, operands, token).logits;
    for (indexed_value<float> const& best : states[at].best) {
      auto const largest = std::max_element(logits.begin(), logits.end());
      wrong += best.index == largest - logits.begin() ? 0 : 1;
      wrong += is_near(static_cast<double>(best.value), *largest, 1e-5) ? 0 : 1;
      *largest = -std::numeric_limits<double>::infinity();
    }
  }
  CHECK(labelled > 0);
  CHECK(wrong == 0);
}

TEST_CASE("bias, cap, temperature, smoothing, z-loss, weights and shifted labels are as the formula says",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    auto problem = make_loss_problem<bfloat16>(72, 101, 45, true);
    problem.options.reduction = reduction;
    problem.options.softcap = 3.0F;
    problem.options.temperature = 0.7F;
    problem.options.smoothing = 0.1F;
    problem.options.z_factor = 1e-2F;
    problem.options.shift = 2;
    check_loss<bfloat16, all_statistics>(exec, problem);
    problem.options.sequence = 9;
    check_loss<bfloat16, all_statistics>(exec, problem);
    problem.options.shift = 9;  // no token has a label
    check_loss<bfloat16, all_statistics>(exec, problem);
  }
}

TEST_CASE("a class weight multiplies the loss of each token with that label, and counts in the mean",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    for (bool const with_all : {false, true}) {  // alone, or beside weights of tokens
      auto problem = make_loss_problem<float>(72, 29, 16, with_all);
      weigh_classes(problem);
      problem.options.reduction = reduction;
      problem.options.shift = 1;
      check_loss<float, all_statistics>(exec, problem);
      problem.options.smoothing = 0.1F;
      problem.options.z_factor = 1e-2F;
      check_loss<float, all_statistics>(exec, problem);
      problem.class_weights.assign(29, 0.0F);  // a mean of nothing
      check_loss<float, all_statistics>(exec, problem);
    }
  }
}

TEST_CASE("a class weight of NaN reaches the losses of tokens with that label alone", "[host]") {
  cpu const exec{.threads = 1};
  auto problem = make_loss_problem<float>(40, 5, 16);
  problem.options.reduction = loss_reduction::none;
  problem.class_weights = {1.0F, 2.0F, std::numeric_limits<float>::quiet_NaN(), 1.0F, 0.5F};
  auto const found = run_loss<small_loss<float>, lse_reducer<float>>(exec, problem);
  int of_class = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    of_class += problem.labels[i] == 2 ? 1 : 0;
    CHECK(std::isnan(found.loss[i]) == (problem.labels[i] == 2));
  }
  CHECK(of_class > 0);
}

TEST_CASE("the forward programs keep the rules for programs, and every executor gives the same bits",
          "[host][threads]") {
  auto const problem = make_loss_problem<bfloat16>(70, 130, 40, true);
  using loss = small_loss<bfloat16, all_statistics>;
  auto const one = run_loss<loss, all_statistics>(cpu{.threads = 1}, problem);
  auto const two = run_loss<loss, all_statistics>(cpu{.threads = 2}, problem);
  auto const other = run_loss<loss, all_statistics>(testing::adversary{.seed = 5}, problem);
  CHECK(one.loss == two.loss);
  CHECK(one.loss == other.loss);
  CHECK(one.log_sum_exp == other.log_sum_exp);
  CHECK(one.entropy == other.entropy);
  CHECK(one.prediction == other.prediction);
}

TEST_CASE("a label outside of the vocabulary is reported and poisons its own token and the total", "[host]") {
  cpu const exec{.threads = 1};
  for (std::int64_t const bad : {std::int64_t{-1}, std::int64_t{50}, std::int64_t{51}, std::int64_t{1} << 40,
                                 std::numeric_limits<std::int64_t>::min()}) {
    auto problem = make_loss_problem<float>(20, 50, 16);
    auto const sound = reference_loss(problem);
    problem.labels[7] = bad;
    auto const mean = run_loss<small_loss<float>, lse_reducer<float>>(exec, problem);
    try {
      exec.wait();
      FAIL("nothing thrown");
    } catch (value_error const& e) {
      CHECK(e.what() == "linear_loss.forward: label " + std::to_string(bad) + " of token 7 is no entry of 50");
    }
    CHECK(std::isnan(mean.loss[0]));
    problem.options.reduction = loss_reduction::none;
    auto const each = run_loss<small_loss<float>, lse_reducer<float>>(exec, problem);
    CHECK_THROWS_AS(exec.wait(), value_error);
    for (std::size_t i = 0; i < 20; ++i) {
      CHECK(
          (i == 7 ? std::isnan(each.loss[i]) : is_near(static_cast<double>(each.loss[i]), sound.tokens[i].loss, 4e-6)));
    }
  }
}

TEST_CASE("a loss of no tokens, or of ignored ones, is zero", "[host]") {
  cpu const exec{.threads = 1};
  for (std::int64_t const tokens : {0, 3, 300}) {
    auto problem = make_loss_problem<bfloat16>(tokens, 40, 16);
    problem.labels.assign(static_cast<std::size_t>(tokens), -100);
    check_loss<bfloat16, all_statistics>(exec, problem);
    problem.options.reduction = loss_reduction::sum;
    check_loss<bfloat16, all_statistics>(exec, problem);
  }
}

TEST_CASE("large, infinite and missing logits do what the formula does", "[host]") {
  cpu const exec{.threads = 1};
  auto problem = make_loss_problem<float>(6, 150, 8, true);
  problem.options.reduction = loss_reduction::none;
  problem.labels = {0, 1, 2, 3, 4, 149};
  for (float const size : {1e4F, -1e4F, 3e4F}) {
    problem.bias.assign(150, size);
    auto const found = run_loss<small_loss<float, entropy_reducer<float>>, entropy_reducer<float>>(exec, problem);
    CHECK(wrong_results<entropy_reducer<float>>(problem, found, 4e-3) == 0);  // half a unit of 3e4 is 1e-3
  }
  problem.bias.assign(150, 0.0F);
  for (std::size_t entry = 64; entry < 149; ++entry) {
    problem.bias[entry] = -infinity;  // more than a tile
  }
  check_loss<float, paired_reducer<entropy_reducer<float>, arg_max_reducer<float>>>(exec, problem);
  problem.bias.assign(150, 0.0F);
  problem.hidden[8 + 1] = std::numeric_limits<float>::quiet_NaN();
  problem.hidden[16 + 1] = infinity;
  auto const found = run_loss<small_loss<float>, lse_reducer<float>>(exec, problem);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(std::isnan(found.loss[i]) == (i == 1 || i == 2));
  }
}

TEST_CASE("a confident token's loss is exact far below the precision of its log-sum-exp", "[host]") {
  cpu const exec{.threads = 1};
  loss_problem<float> problem{1, 3, 1, {1.0F}, {100.0F, 84.0F, 80.0F}, {0}, {}, {}, {}};
  auto const found = run_loss<small_loss<float>, lse_reducer<float>>(exec, problem);
  CHECK(static_cast<double>(found.loss[0]) == Approx(std::log1p(std::exp(-16.0) + std::exp(-20.0))).epsilon(0.1));
  problem.classifier = {100.0F, 0.0F, 0.0F};
  CHECK(run_loss<small_loss<float>, lse_reducer<float>>(exec, problem).loss[0] == 0.0F);
}

TEST_CASE("of equal logits the first is the prediction", "[host]") {
  cpu const exec{.threads = 1};
  using reducer = paired_reducer<lse_reducer<float>, arg_max_reducer<float>>;
  loss_problem<float> problem{2, 300, 1, {1.0F, 0.0F}, std::vector<float>(300, 0.5F), {0, 5}, {}, {}, {}};
  problem.classifier[70] = problem.classifier[200] = 1.5F;
  auto const found = run_loss<small_loss<float, reducer>, reducer>(exec, problem);
  CHECK(found.prediction == std::vector<std::int32_t>{70, 0});
}

TEST_CASE("the loss honours strides of everything", "[host]") {
  cpu const exec{.threads = 1};
  auto const problem = make_loss_problem<float>(20, 30, 12, true);
  std::vector<float> hidden(20 * 12 * 2);
  std::vector<std::int64_t> labels(40, 1LL << 50);
  for (std::size_t i = 0; i < 20; ++i) {
    labels[2 * i] = problem.labels[i];
    for (std::size_t k = 0; k < 12; ++k) {
      hidden[k * 40 + 2 * i] = problem.hidden[i * 12 + k];
    }
  }
  using loss = small_loss<float>;
  auto in = problem.inputs();
  in.hidden = matrix_view<float const>(hidden.data(), {20, 12}, {2, 40});
  in.labels = array_view<std::int64_t const>(labels.data(), {20}, {2});
  std::vector<float> value(1);
  auto const plan = loss::plan_forward(exec, {20, 30, 12});
  buffer<std::byte> memory(exec, plan.bytes());
  loss::forward(exec, in, {}, {value}, workspace(plan, memory));
  exec.wait();
  CHECK(is_near(static_cast<double>(value[0]), reference_loss(problem).total, 4e-6));
}

TEST_CASE("a loss alone takes little memory, however large the vocabulary", "[host]") {
  cpu const exec{.threads = 1};
  using loss = cut_cross_entropy;
  CHECK(loss::plan_forward(exec, {8192, 256000, 2304}).bytes() <= 1 << 20);
  CHECK(loss::plan_forward(exec, {8192, 128256, 4096}).bytes() <= 1 << 20);
  CHECK(loss::plan_forward(exec, {1 << 20, 256000, 2304}).bytes() <= std::int64_t{81} << 20);
}

TEST_CASE("the portable forward pass says that it leaves no marks", "[host]") {
  cpu const exec{.threads = 1};
  auto const problem = make_loss_problem<float>(20, 300, 12);
  using loss = small_loss<float>;
  linear_loss_shape const extents{20, 300, 12};
  detail::loss_mark_regions<gemm_tile<float, tessera::shape<64, 64, 8>>, lse_reducer<float>> const layout("test",
                                                                                                          extents);
  auto const plan = loss::plan_backward(exec, extents, problem.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  space[layout.is_marked][0] = 1;
  std::vector<float> value(1);
  loss::forward(exec, problem.inputs(), problem.options, {value}, space);
  exec.wait();
  CHECK(space[layout.is_marked][0] == 0);
}

TEST_CASE("a loss says what does not fit together", "[host]") {
  cpu const exec{.threads = 1};
  auto const problem = make_loss_problem<float>(4, 6, 8, true);
  using loss = small_loss<float>;
  std::vector<float> value(4);
  auto const plan = loss::plan_forward(exec, {4, 6, 8});
  CHECK_THAT(plan.describe(), contains("log-sum-exps"));
  buffer<std::byte> memory(exec, plan.bytes());
  array_view<float> const one(value.data(), 1);
  auto const message = [&](loss::inputs<std::int64_t> const& in, linear_loss_options const& options,
                           linear_loss_outputs const& out) {
    return message_of([&] { loss::forward(exec, in, options, out, workspace(plan, memory)); });
  };
  CHECK(message(problem.inputs(), {}, {one}) == "");
  CHECK(message(problem.inputs(), {}, {value}) == "linear_loss.forward: the loss has 4 elements but needs 1");
  CHECK(message(problem.inputs(), {.temperature = 0.0F}, {one}) ==
        "linear_loss.forward: the temperature is 0.000000 but must be positive and finite");
  auto in = problem.inputs();
  in.labels = {problem.labels.data(), 3};
  CHECK(message(in, {}, {one}) == "linear_loss.forward: there are 3 labels but 4 tokens");
}

TEST_CASE("a loss says whether its reducer's state is small enough for warpgroups", "[host]") {
  using lse = lse_reducer<float>;
  CHECK(exact_cross_entropy_of<bfloat16, lse>::is_for_warpgroups);
  CHECK(exact_cross_entropy_of<float16, loss_statistics>::is_for_warpgroups);
  CHECK(exact_cross_entropy_of<tf32, loss_statistics>::is_for_warpgroups);
  CHECK(!exact_cross_entropy_of<float, lse>::is_for_warpgroups);
  CHECK(exact_cross_entropy_of<bfloat16, paired_reducer<lse, many_sums<98>>>::is_for_warpgroups);  // 400 bytes
  CHECK(!exact_cross_entropy_of<bfloat16, paired_reducer<lse, many_sums<99>>>::is_for_warpgroups);
  CHECK(warpgroup_loss_policy<lse> == warpgroup_loss_tuning{}(900));
}

TEST_CASE("a loss names the extents that its workspace was not planned for, and those that none could be", "[host]") {
  cpu const exec{.threads = 1};
  auto const problem = make_loss_problem<float>(300, 70, 8, true);
  using loss = small_loss<float>;
  std::vector<float> value(1);
  auto const small = loss::plan_forward(exec, {1, 70, 8});
  buffer<std::byte> memory(exec, small.bytes());
  workspace const space(small, memory);
  auto const needed = [](std::int64_t bytes) {
    return " bytes but 300 tokens of 8 channels and 70 entries need " + std::to_string(bytes);
  };
  CHECK_THROWS_WITH(loss::forward(exec, problem.inputs(), {}, {value}, space),
                    "linear_loss.forward: the workspace is of a plan of " + std::to_string(small.bytes()) +
                        needed(loss::plan_forward(exec, {300, 70, 8}).bytes()));
  CHECK_THROWS_WITH(loss::backward(exec, problem.inputs(), {}, {}, linear_loss_gradients<float>{}, space),
                    "linear_loss.backward: the workspace is of a plan of " + std::to_string(small.bytes()) +
                        needed(loss::plan_backward(exec, {300, 70, 8}).bytes()));

  std::int64_t const huge = std::int64_t{1} << 61;
  CHECK_THROWS_WITH(loss::plan_forward(exec, {huge, 100, 64}),
                    contains("linear_loss.forward: there are 2305843009213693952"));
  CHECK_THROWS_AS(loss::plan_backward(exec, {100, 100, huge}), shape_error);
  // The largest extents there are: whatever the plan says of them, no product wraps.
  CHECK_THROWS_AS(loss::plan_backward(exec, {std::int64_t{1} << 40, 0x7fffffff, 0x7fffffff}, {}), shape_error);
}
