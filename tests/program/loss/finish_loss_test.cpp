// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using lse = lse_reducer<float>;
using sum = sum_reducer<float>;
using best = arg_max_reducer<float>;
using all_of_them = paired_reducer<lse, paired_reducer<sum, best>>;

/// Keeps the index of each row's largest logit, and counts calls.
struct keep_place {
  array_view<std::int32_t> indices;
  array_view<std::int32_t> calls;
  TESSERA_FN void operator()(std::int64_t row, std::int64_t token, best::state_type const& state) const {
    indices[token] = state.index;
    calls[row] += 1;
  }
};

/// Rows of ten logits in two parts of the vocabulary; every third token has no label.
struct reduced_rows {
  static constexpr std::int64_t vocabulary = 10;
  static constexpr float smoothing = 0.1F;
  static constexpr float z_factor = 0.01F;
  std::int64_t tokens;
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> row_of;
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> count{0};
  std::vector<all_of_them::state_type> states;
  std::vector<float> targets;
  std::vector<float> weights;
  std::vector<float> class_weights{0.5F, 1.0F, 2.0F, 0.0F, 3.0F, 1.5F, 1.0F, 0.25F, 4.0F, 1.0F};

  explicit reduced_rows(std::int64_t of_tokens) : tokens(of_tokens) {
    for (std::int64_t token = 0; token < tokens; ++token) {
      bool const has_label = token % 3 != 1;
      row_of.push_back(has_label ? count[0] : -1);
      weights.push_back(static_cast<float>(token % 5) * 0.5F);
      if (has_label) {
        order.push_back(token);
        labels.push_back(static_cast<std::int32_t>(token % vocabulary));
        targets.push_back(logit(token, token % vocabulary));
        count[0] += 1;
      }
    }
    all_of_them const reducer{};
    for (std::int64_t piece = 0; piece < 2; ++piece) {
      for (std::int64_t const token : order) {
        auto state = reducer.identity();
        for (std::int64_t entry = 5 * piece; entry < 5 * piece + 5; ++entry) {
          push_indexed(reducer, state, indexed_value<float>{logit(token, entry), static_cast<std::int32_t>(entry)});
        }
        states.push_back(state);
      }
    }
  }
  static float logit(std::int64_t token, std::int64_t entry) {
    return static_cast<float>((7 * token + 3 * entry) % 11) * 0.5F - 2.0F;
  }
  static double log_sum_exp(std::int64_t token) {
    double total = 0;
    for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
      total += std::exp(static_cast<double>(logit(token, entry)));
    }
    return std::log(total);
  }
  static double mean_logit(std::int64_t token) {
    double total = 0;
    for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
      total += static_cast<double>(logit(token, entry));
    }
    return total / static_cast<double>(vocabulary);
  }
  static std::int32_t likeliest(std::int64_t token) {
    std::int64_t found = 0;
    for (std::int64_t entry = 1; entry < vocabulary; ++entry) {
      found = logit(token, entry) > logit(token, found) ? entry : found;
    }
    return static_cast<std::int32_t>(found);
  }
  [[nodiscard]] double loss(std::int64_t token) const {
    auto const target = static_cast<double>(logit(token, token % vocabulary));
    double const own = log_sum_exp(token);
    return (1 - static_cast<double>(smoothing)) * (own - target) +
           static_cast<double>(smoothing) * (own - mean_logit(token)) + static_cast<double>(z_factor) * own * own;
  }
};

/// What a loop finds wrong in what both programs write for so many tokens.
template <class Executor>
int wrong_losses(Executor const& exec, std::int64_t tokens, bool is_mean) {
  reduced_rows rows(tokens);
  auto const size = static_cast<std::size_t>(tokens);
  auto const labelled = rows.count[0];
  rows.order.resize(size, -1);  // lists have room for all tokens
  std::vector<float> losses(size, -7.0F);
  std::vector<float> log_sums(size, -7.0F);
  std::vector<std::int32_t> predictions(size, -7);
  std::vector<std::int32_t> indices(size, -7);
  std::vector<std::int32_t> calls(size);
  std::vector<float> row_lse(size, -7.0F);
  std::vector<float> row_entropy(size, -7.0F);
  std::vector<loss_sums> sums((size + 255) / 256, loss_sums{-1, -1, -1});
  finish_loss_tokens<all_of_them, best, keep_place> const of_tokens{
      {rows.order, rows.row_of, rows.labels, rows.count},
      {},
      {rows.states.data(), {2, labelled}},
      rows.targets,
      {rows.weights, rows.class_weights},
      {reduced_rows::smoothing, reduced_rows::z_factor, reduced_rows::vocabulary},
      {losses, log_sums, {}, {}, predictions},
      row_lse,
      row_entropy,
      {indices, calls},
      sums};
  exec.run(of_tokens, of_tokens.groups());
  std::vector<float> const poison{0.0F};
  std::vector<float> total{-7.0F};
  std::vector<float> accuracy{-7.0F};
  std::vector<std::int64_t> count{-7};
  std::vector<float> scale{-7.0F};
  exec.run(finish_loss{sums, rows.count, poison, is_mean, {total, accuracy, count}, scale}, 1);
  exec.wait();

  int wrong = 0;
  double expected = 0;
  double weight = 0;
  double correct = 0;
  auto const is_near = [](float found, double value) {
    return std::fabs(static_cast<double>(found) - value) <= 1e-5 * (1 + std::fabs(value));
  };
  for (std::int64_t token = 0; token < tokens; ++token) {
    auto const at = static_cast<std::size_t>(token);
    if (rows.row_of[at] < 0) {  // what tokens without a label get is written when tokens are listed
      wrong += losses[at] != -7.0F || log_sums[at] != -7.0F || predictions[at] != -7 || indices[at] != -7 ? 1 : 0;
      continue;
    }
    auto const row = static_cast<std::size_t>(rows.row_of[at]);
    std::int32_t const likeliest = reduced_rows::likeliest(token);
    auto const own = static_cast<double>(rows.weights[at] * rows.class_weights[at % 10]);
    wrong += is_near(losses[at], own * rows.loss(token)) ? 0 : 1;
    wrong += is_near(log_sums[at], reduced_rows::log_sum_exp(token)) && row_lse[row] == log_sums[at] ? 0 : 1;
    wrong += predictions[at] == likeliest && indices[at] == likeliest && calls[row] == 1 ? 0 : 1;
    expected += own * rows.loss(token);
    weight += own;
    correct += likeliest == rows.labels[row] ? 1 : 0;
  }
  double const factor = !is_mean ? 1.0 : weight != 0 ? 1 / weight : 0.0;
  wrong += is_near(total[0], expected * factor) ? 0 : 1;
  wrong += is_near(scale[0], factor) ? 0 : 1;
  wrong += is_near(accuracy[0], labelled == 0 ? 0.0 : correct / static_cast<double>(labelled)) ? 0 : 1;
  wrong += count[0] == labelled ? 0 : 1;
  return wrong;
}

}  // namespace

TEST_CASE("losses of tokens and their sum or mean follow from the states of rows", "[host]") {
  for (std::int64_t const tokens : {0, 1, 2, 255, 600}) {
    CAPTURE(tokens);
    CHECK(wrong_losses(cpu{.threads = 1}, tokens, true) == 0);
    CHECK(wrong_losses(cpu{.threads = 1}, tokens, false) == 0);
  }
}

TEST_CASE("finishing losses keeps the rules for programs", "[host]") {
  CHECK(wrong_losses(testing::adversary{.seed = 3}, 300, true) == 0);
}

TEST_CASE("a row whose log-sum-exp is not finite has none for the backward pass", "[host]") {
  for (float const logit : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<std::int64_t> order{0};
    std::vector<std::int64_t> row_of{0};
    std::vector<std::int32_t> labels{0};
    std::vector<std::int64_t> count{1};
    auto state = lse{}.identity();
    lse{}.push(state, logit);
    lse{}.push(state, 1.0F);
    std::vector<float> const targets{1.0F};
    std::vector<float> losses{-7.0F};
    std::vector<float> row_lse{-7.0F};
    std::vector<float> row_entropy{-7.0F};
    std::vector<loss_sums> sums(1);
    finish_loss_tokens<lse> const program{
        {order, row_of, labels, count}, {},      {&state, {1, 1}}, targets, {},  {0.0F, 0.0F, 2},
        {losses, {}, {}, {}, {}},       row_lse, row_entropy,      {},      sums};
    cpu const exec{.threads = 1};
    exec.run(program, 1);
    CHECK(std::isnan(row_lse[0]));
    CHECK_FALSE(std::isfinite(losses[0]));
    CHECK(sums[0].weight == 1.0);
  }
}

TEST_CASE("an impossible label poisons the loss of all tokens, and a mean of nothing is zero", "[host]") {
  std::vector<loss_sums> const sums{{6.0, 3.0, 1.0}, {2.0, 1.0, 1.0}};
  std::vector<loss_sums> const none{{0.0, 0.0, 0.0}};
  std::vector<std::int64_t> const count{4};
  std::vector<float> poison{0.0F};
  std::vector<float> total{-7.0F};
  std::vector<float> scale{-7.0F};
  cpu const exec{.threads = 1};
  exec.run(finish_loss{sums, count, poison, true, {total, {}, {}}, scale}, 1);
  CHECK(total[0] == 2.0F);
  CHECK(scale[0] == 0.25F);
  exec.run(finish_loss{none, count, poison, true, {total, {}, {}}, scale}, 1);
  CHECK(total[0] == 0.0F);
  CHECK(scale[0] == 0.0F);
  poison[0] = std::numeric_limits<float>::quiet_NaN();
  exec.run(finish_loss{sums, count, poison, false, {total, {}, {}}, scale}, 1);
  CHECK(std::isnan(total[0]));
  CHECK(scale[0] == 1.0F);
}
