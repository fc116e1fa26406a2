// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "support/row_states.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr double rounded = 4e-3;  // gradients of bf16
constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

/// A problem in which few entries have most of the probability.
loss_problem<bfloat16> peaked_problem(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels) {
  auto problem = make_loss_problem<bfloat16>(tokens, vocabulary, channels);
  for (bfloat16& value : problem.classifier) {
    value = store<bfloat16>(2.5F * static_cast<float>(load(value)));
  }
  problem.options.reduction = loss_reduction::sum;
  return problem;
}

template <class Loss>
void check_nothing_is_lost(loss_problem<bfloat16> problem) {
  CAPTURE(problem.tokens, problem.vocabulary, problem.channels);
  problem.options.hidden_threshold = problem.options.classifier_threshold = 1e-20F;
  tessera::cuda const exec;
  auto const found = run_on_device<Loss, bfloat16>(exec, problem, false);
  auto const expected = reference_gradient(problem);
  CHECK(relative_distance(found.hidden, expected.hidden) <= rounded);
  CHECK(relative_distance(found.classifier, expected.classifier) <= rounded);
}

double number(double value) {
  return value;
}
double number(float value) {
  return static_cast<double>(value);
}
double number(bfloat16 value) {
  return as_double(value);
}

template <class T>
double length_of_row(std::vector<T> const& values, std::size_t row, std::size_t columns) {
  double squares = 0;
  for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
    squares += number(values[i]) * number(values[i]);
  }
  return std::sqrt(squares);
}

/// How much the rows of a filtered gradient may differ from those of the exact one.
struct filter_bounds {
  std::vector<double> hidden;
  std::vector<double> classifier;

  filter_bounds(loss_problem<bfloat16> const& p, double threshold)
      : hidden(static_cast<std::size_t>(p.tokens)), classifier(static_cast<std::size_t>(p.vocabulary)) {
    auto const channels = static_cast<std::size_t>(p.channels);
    loss_operands const operands(p);
    for (std::size_t i = 0; i < hidden.size(); ++i) {
      token_reference const r = reference_token(p, operands, static_cast<std::int64_t>(i));
      for (std::size_t j = 0; j < classifier.size() && r.label >= 0; ++j) {
        auto const entry = static_cast<std::int64_t>(j);
        double const apart = std::fabs(std::exp(r.logits[j] - r.log_sum_exp) - (entry == r.label ? 1 : 0));
        double const lost = apart < threshold ? apart : 0.004 * apart;  // or rounded
        hidden[i] += lost * length_of_row(p.classifier, j, channels);
        classifier[j] += lost * length_of_row(p.hidden, i, channels);
      }
    }
  }
};

void check_bounds(std::vector<bfloat16> const& found, std::vector<double> const& exact,
                  std::vector<double> const& bounds, std::size_t channels) {
  std::vector<double> apart(exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    apart[i] = as_double(found[i]) - exact[i];
  }
  std::int64_t beyond = 0;
  for (std::size_t row = 0; row < bounds.size(); ++row) {
    double const most = bounds[row] + 0.004 * length_of_row(exact, row, channels) + 1e-6;
    beyond += length_of_row(apart, row, channels) <= most ? 0 : 1;
  }
  CHECK(beyond == 0);
}

}  // namespace

TEST_CASE("a tiny threshold leaves out nothing on a GPU, in whatever order entries are taken", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1, 129, 300}) {
    check_nothing_is_lost<cut_cross_entropy>(peaked_problem(tokens, 777, 72));
  }
  for (std::int64_t const vocabulary : {1, 31, 128, 257, 3000}) {
    check_nothing_is_lost<cut_cross_entropy>(peaked_problem(140, vocabulary, 64));
  }
  auto in_parts = peaked_problem(700, 3000, 136);
  in_parts.options.workspace_budget = 3 * mebibyte;
  check_nothing_is_lost<cut_cross_entropy>(in_parts);
  check_nothing_is_lost<cut_cross_entropy_of<bfloat16, loss_statistics>>(peaked_problem(200, 700, 64));
  // No marks from this reducer's forward pass, which is the portable one: everything counts.
  using large = paired_reducer<lse_reducer<float>, many_sums<99>>;
  static_assert(!cut_cross_entropy_of<bfloat16, large>::is_for_warpgroups);
  check_nothing_is_lost<cut_cross_entropy_of<bfloat16, large>>(peaked_problem(200, 700, 64));
}

TEST_CASE("an infinite threshold leaves out everything on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = peaked_problem(300, 700, 64);
  problem.options.hidden_threshold = problem.options.classifier_threshold = infinity;
  tessera::cuda const exec;
  auto const found = run_on_device<cut_cross_entropy, float>(exec, problem, false);
  CHECK(found.hidden == std::vector<float>(found.hidden.size()));
  CHECK(found.classifier == std::vector<float>(found.classifier.size()));
}

TEST_CASE("what is left out on a GPU is below the threshold, and much is", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const budget : {std::int64_t{0}, 2 * mebibyte}) {
    auto problem = peaked_problem(400, 3000, 64);
    float const threshold = 0.125F;
    problem.options.hidden_threshold = problem.options.classifier_threshold = threshold;
    problem.options.workspace_budget = budget;
    tessera::cuda const exec;
    auto const exact = reference_gradient(problem);
    filter_bounds const bounds(problem, static_cast<double>(threshold));
    using with_statistics = cut_cross_entropy_of<bfloat16, loss_statistics>;
    for (auto const& found : {run_on_device<cut_cross_entropy, bfloat16>(exec, problem, false),
                              run_on_device<with_statistics, bfloat16>(exec, problem, false)}) {
      check_bounds(found.hidden, exact.hidden, bounds.hidden, 64);
      check_bounds(found.classifier, exact.classifier, bounds.classifier, 64);
      std::int64_t empty = 0;
      for (std::size_t row = 0; row < 3000; ++row) {
        empty += length_of_row(found.classifier, row, 64) == 0 ? 1 : 0;
      }
      CAPTURE(empty);
      if (is_hopper()) {  // which takes entries in the order of their use
        CHECK((empty > 300 && empty < 2900));
      }
    }
  }
}

TEST_CASE("a filtered pass on a GPU keeps NaN, and tokens without a label get zeros", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = peaked_problem(300, 1000, 64);
  problem.labels[130] = 7;
  problem.hidden[130 * 64 + 5] = store<bfloat16>(NAN);
  tessera::cuda const exec;
  auto const found = run_on_device<cut_cross_entropy, bfloat16>(exec, problem, false);
  std::int64_t wrong = 0;
  for (std::size_t token = 0; token < 300; ++token) {
    for (std::size_t channel = 0; channel < 64; ++channel) {
      float const value = static_cast<float>(load(found.hidden[token * 64 + channel]));
      wrong += token == 130                    ? (std::isnan(value) ? 0 : 1)
               : problem.labels[token] == -100 ? (value == 0.0F ? 0 : 1)
                                               : (std::isfinite(value) ? 0 : 1);
    }
  }
  CHECK(wrong == 0);
  CHECK(std::all_of(found.classifier.begin(), found.classifier.end(),
                    [](bfloat16 value) { return std::isnan(static_cast<float>(load(value))); }));
  std::fill(problem.labels.begin(), problem.labels.end(), -100);
  auto const nothing = run_on_device<cut_cross_entropy, float>(exec, problem, false);
  CHECK(nothing.loss[0] == 0.0F);
  CHECK(nothing.hidden == std::vector<float>(nothing.hidden.size()));
  CHECK(nothing.classifier == std::vector<float>(nothing.classifier.size()));
}

TEST_CASE("a filtered pass on a GPU repeats bit for bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = peaked_problem(700, 3000, 136);
  problem.options.hidden_threshold = problem.options.classifier_threshold = 0.001F;
  problem.options.workspace_budget = 3 * mebibyte;
  tessera::cuda const exec;
  auto const first = run_on_device<cut_cross_entropy, bfloat16>(exec, problem, false);
  for (int i = 0; i < 5; ++i) {
    auto const again = run_on_device<cut_cross_entropy, bfloat16>(exec, problem, false);
    CHECK(std::memcmp(again.hidden.data(), first.hidden.data(), 2 * first.hidden.size()) == 0);
    CHECK(std::memcmp(again.classifier.data(), first.classifier.data(), 2 * first.classifier.size()) == 0);
  }
}

TEST_CASE("filtered gradients are added to old ones on a GPU, in whatever order entries are taken", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const budget : {std::int64_t{0}, 2 * mebibyte}) {
    auto problem = peaked_problem(400, 3000, 64);
    problem.options.workspace_budget = budget;
    problem.options.hidden_threshold = problem.options.classifier_threshold = 1e-20F;  // leaves out nothing
    check_added_on_device<cut_cross_entropy>(problem, rounded, false);
    check_added_on_device<cut_cross_entropy>(problem, rounded, true);
    problem.options.hidden_threshold = problem.options.classifier_threshold = 0.125F;
    auto const old = old_gradients_for(reference_gradient(problem));
    auto const written = run_on_device<cut_cross_entropy, float>(exec, problem, false);
    auto const add = [&] {
      return run_on_device<cut_cross_entropy, float>(exec, problem, false, {}, identity_logits{}, &old);
    };
    auto const found = add();
    auto const again = add();
    CHECK(std::memcmp(again.hidden.data(), found.hidden.data(), 4 * found.hidden.size()) == 0);
    CHECK(std::memcmp(again.classifier.data(), found.classifier.data(), 4 * found.classifier.size()) == 0);
    auto const sum = added_to(old, doubles_of_results(written));
    CHECK(relative_distance(found.hidden, sum.hidden) <= 1e-6);
    CHECK(relative_distance(found.classifier, sum.classifier) <= 1e-6);
    CHECK(changed_without_label(problem, found.hidden, old.hidden) == 0);
    std::int64_t empty = 0;
    std::int64_t wrong = 0;
    for (std::size_t row = 0; row < 3000; ++row) {
      bool const is_empty = length_of_row(written.classifier, row, 64) == 0;
      empty += is_empty ? 1 : 0;
      for (std::size_t i = row * 64; is_empty && i < (row + 1) * 64; ++i) {
        wrong += to_bits(found.classifier[i]) == to_bits(old.classifier[i]) ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
    if (is_hopper()) {
      CHECK(empty > 0);
    }
    problem.options.hidden_threshold = problem.options.classifier_threshold = infinity;  // leaves out everything
    auto const nothing = add();
    CHECK(std::memcmp(nothing.hidden.data(), old.hidden.data(), 4 * old.hidden.size()) == 0);
    CHECK(std::memcmp(nothing.classifier.data(), old.classifier.data(), 4 * old.classifier.size()) == 0);
  }
}

TEST_CASE("a NaN in an old gradient stays where it is on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto problem = peaked_problem(300, 1000, 64);
  problem.labels[7] = 3;
  problem.labels[8] = -100;
  for (bool const with_bias : {false, true}) {
    auto old = old_gradients_for(reference_gradient(problem));
    auto const sum = run_on_device<cut_cross_entropy, float>(exec, problem, with_bias, {}, identity_logits{}, &old);
    old.hidden[7 * 64 + 5] = old.hidden[8 * 64 + 6] = old.classifier[3 * 64 + 1] = NAN;
    auto const found = run_on_device<cut_cross_entropy, float>(exec, problem, with_bias, {}, identity_logits{}, &old);
    auto const wrong = [](std::vector<float> const& with, std::vector<float> const& without,
                          std::vector<float> const& before) {
      std::int64_t count = 0;
      for (std::size_t i = 0; i < with.size(); ++i) {
        bool const is_right = std::isnan(before[i]) ? std::isnan(with[i]) : to_bits(with[i]) == to_bits(without[i]);
        count += is_right ? 0 : 1;
      }
      return count;
    };
    CHECK(wrong(found.hidden, sum.hidden, old.hidden) == 0);
    CHECK(wrong(found.classifier, sum.classifier, old.classifier) == 0);
  }
}
