// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/chosen_log_probabilities.hpp>
#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/chosen_entries.hpp"
#include "support/loss_maps.hpp"
#include "support/loss_runs.hpp"
#include "support/message_of.hpp"
#include "support/stored_classifiers.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr float untouched = -77.0F;

template <class Map, class T, class Entry>
auto inputs_of(loss_problem<T> const& p, chosen_entries<Entry> const& chosen, Map const& map) {
  using algorithm = chosen_log_probabilities<T, Map>;
  return typename algorithm::template inputs<Entry>{{p.hidden.data(), {p.tokens, p.channels}},
                                                    {p.classifier.data(), {p.vocabulary, p.channels}},
                                                    {chosen.entries.data(), {p.tokens, chosen.k}},
                                                    chosen.log_sum_exp,
                                                    p.bias,
                                                    map};
}

template <class T, class Entry, class Map = identity_logits, class Exec>
std::vector<float> results_of(Exec const& exec, loss_problem<T> const& p, chosen_entries<Entry> const& chosen,
                              Map const& map = {}) {
  std::vector<float> found(chosen.entries.size(), untouched);
  chosen_log_probabilities<T, Map>::forward(exec, inputs_of(p, chosen, map), p.options,
                                            {found.data(), {p.tokens, chosen.k}});
  return found;
}

template <class T, class Entry = std::int32_t, class Exec>
void check_chosen(Exec const& exec, loss_problem<T> const& p, std::int64_t k, double tolerance = 3e-6) {
  CAPTURE(p.tokens, p.vocabulary, p.channels, k, p.options.softcap, p.options.temperature);
  chosen_entries<Entry> const chosen(p, k);
  CHECK(wrong_chosen(p, chosen, results_of(exec, p, chosen), tolerance) == 0);
}

/// A matrix of other strides with the same elements.
template <class T>
struct strided_copy {
  std::vector<T> values;
  matrix_view<T> view;

  strided_copy(std::vector<T> const& from, std::int64_t rows, std::int64_t columns, std::int64_t offset,
               std::int64_t row_stride, std::int64_t column_stride)
      : values(static_cast<std::size_t>(offset + rows * row_stride + columns * column_stride), T{}),
        view(values.data() + offset, {rows, columns}, {row_stride, column_stride}) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns && !from.empty(); ++j) {
        view(i, j) = from[static_cast<std::size_t>(i * columns + j)];
      }
    }
  }
};

}  // namespace

TEMPLATE_TEST_CASE("chosen log-probabilities take a classifier that is a source", "[host][threads]", master_rows,
                   row_scaled<bfloat16>, row_scaled<float>) {
  auto const p = make_stored_problem<TestType>(21, 67, 24, true);
  using value_type = typename TestType::value_type;
  chosen_entries<std::int32_t> const chosen(p.rounded, 5);
  using algorithm = with_classifier<chosen_log_probabilities<value_type>, TestType>;
  auto const plain = inputs_of(p.rounded, chosen, identity_logits{});
  typename algorithm::template inputs<std::int32_t> const in{plain.hidden,      p.source(), plain.entries,
                                                             plain.log_sum_exp, plain.bias, {}};
  std::vector<float> found(chosen.entries.size(), untouched);
  algorithm::forward(cpu{.threads = 2}, in, p.rounded.options, {found.data(), {21, 5}});
  CHECK(wrong_chosen(p.rounded, chosen, found, 3e-6) == 0);
  CHECK(found == results_of(cpu{.threads = 2}, p.rounded, chosen));  // the same additions
  auto other = in;
  other.hidden = {p.rounded.hidden.data(), {21, 23}, {24, 1}};
  CHECK(message_of([&] {
          algorithm::forward(cpu{.threads = 2}, other, {}, {found.data(), {21, 5}});
        }) == "chosen_log_probabilities.forward: the hidden states have 23 channels but the classifier has 24");
}

TEST_CASE("log-probabilities of chosen entries are right whatever the extents", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const channels : {0, 1, 7, 8, 9, 33, 255, 256, 257, 1030}) {
    check_chosen(exec, make_loss_problem<float>(5, 40, channels, channels % 2 == 1), 6);
    check_chosen(exec, make_loss_problem<bfloat16>(5, 40, channels, channels % 2 == 1), 6);
  }
  for (std::int64_t const tokens : {0, 1, 7, 70}) {
    for (std::int64_t const k : {0, 1, 3, 4, 5, 7, 8, 33}) {
      check_chosen<float16, std::int64_t>(exec, make_loss_problem<float16>(tokens, 11, 24), k);
    }
  }
  check_chosen(exec, make_loss_problem<bfloat16>(9, 1, 16), 4);
  CHECK_NOTHROW(exec.wait());
}

TEST_CASE("chosen entries go through bias, softcap, temperature and a map", "[host]") {
  cpu const exec{.threads = 1};
  auto problem = make_loss_problem<float16>(20, 50, 40, true);
  problem.options.softcap = 2.0F;
  problem.options.temperature = 0.75F;
  check_chosen(exec, problem, 5);
  chosen_entries<std::int64_t> const chosen(problem, 5);
  problem.map = in_double(curved{});
  CHECK(wrong_chosen(problem, chosen, results_of(exec, problem, chosen, curved{}), 3e-6) == 0);
  auto const prior = log_prior_of(problem.vocabulary);
  problem.map = in_double(prior, 0.5F);
  CHECK(wrong_chosen(problem, chosen, results_of(exec, problem, chosen, adjusted_by_prior{prior, 0.5F}), 3e-6) == 0);
  auto const heat = heat_of(problem.tokens, 3.0F);
  problem.map = in_double(heat);
  CHECK(wrong_chosen(problem, chosen, results_of(exec, problem, chosen, heated_by_token{heat, 3.0F}), 3e-6) == 0);
  problem.options.smoothing = 0.1F;  // of the loss alone
  problem.options.shift = 3;
  CHECK(wrong_chosen(problem, chosen, results_of(exec, problem, chosen, heated_by_token{heat, 3.0F}), 3e-6) == 0);
}

TEST_CASE("chosen entries are right with any strides, and whole chunks give the bits of single elements", "[host]") {
  cpu const exec{.threads = 1};
  auto const p = make_loss_problem<bfloat16>(7, 30, 48, true);
  chosen_entries<std::int32_t> const chosen(p, 6);
  auto const expected = results_of(exec, p, chosen);
  CHECK(wrong_chosen(p, chosen, expected, 3e-6) == 0);
  for (auto const& [offset, row, column] :
       {std::array<std::int64_t, 3>{0, 56, 1}, {1, 48, 1}, {0, 49, 1}, {0, 96, 2}, {0, 1, 60}}) {
    strided_copy<bfloat16> const hidden(p.hidden, 7, 48, offset, row, column);
    strided_copy<bfloat16> const classifier(p.classifier, 30, 48, offset, row, column);
    strided_copy<std::int32_t> const entries(chosen.entries, 7, 6, offset, 60, 3);
    strided_copy<float> const out(std::vector<float>{}, 7, 6, offset, 1, 9);
    auto in = inputs_of(p, chosen, identity_logits{});
    in.hidden = hidden.view;
    in.classifier = classifier.view;
    in.entries = entries.view;
    chosen_log_probabilities<bfloat16>::forward(exec, in, p.options, out.view);
    std::int64_t apart = 0;
    for (std::int64_t i = 0; i < 7 * 6; ++i) {
      apart += out.view(i / 6, i % 6) == expected[static_cast<std::size_t>(i)] ? 0 : 1;
    }
    CAPTURE(offset, row, column);
    CHECK(apart == 0);
  }
}

TEST_CASE("writing log-probabilities of chosen entries keeps the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 3};
  check_chosen(exec, make_loss_problem<bfloat16>(9, 40, 300, true), 6);
  check_chosen(exec, make_loss_problem<float>(3, 40, 7), 1);
}

TEST_CASE("the chosen label has the log-probability that the loss gives it", "[host][threads]") {
  cpu const exec{.threads = 2};
  auto problem = make_loss_problem<bfloat16>(70, 150, 72, true);
  for (float const softcap : {0.0F, 3.0F}) {
    problem.options.softcap = softcap;
    problem.options.temperature = 1.25F;
    auto const loss = run_loss<loss_on_small_tiles<bfloat16>, lse_reducer<float>>(exec, problem);
    chosen_entries<std::int64_t> labels(problem, 1);
    labels.entries = problem.labels;  // -100 where there is none
    labels.log_sum_exp = loss.log_sum_exp;
    auto const found = results_of(exec, problem, labels);
    CHECK(wrong_chosen(problem, labels, found, 3e-6) == 0);
    for (std::size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i, problem.labels[i]);
      CHECK(std::fabs(found[i] - loss.log_probability[i]) <= 4e-6F * (1.0F + loss.log_sum_exp[i]));
    }
  }
}

TEST_CASE("an entry outside of the vocabulary is reported with its position, and its result is NaN",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  auto const p = make_loss_problem<float>(20, 50, 9);
  for (std::int64_t const bad : {std::int64_t{50}, std::int64_t{1} << 40}) {
    chosen_entries<std::int64_t> chosen(p, 7);
    chosen.entries[50] = bad;
    chosen.entries[47] = bad;
    CHECK(wrong_chosen(p, chosen, results_of(exec, p, chosen), 3e-6) == 0);
    CHECK(message_of([&] { exec.wait(); }) == "chosen_log_probabilities.forward: entry " + std::to_string(bad) +
                                                  " at position 47 of the chosen ones is none of 50");
    CHECK_NOTHROW(exec.wait());
  }
}

TEST_CASE("masked entries, NaNs and infinities reach the log-probabilities of those who chose them", "[host]") {
  cpu const exec{.threads = 1};
  auto p = make_loss_problem<float>(6, 5, 9, true);
  p.bias[2] = -infinity;
  p.bias[3] = infinity;
  p.bias[4] = std::nanf("");
  chosen_entries<std::int32_t> chosen(p, 4);
  for (std::size_t token = 0; token < 6; ++token) {
    for (std::size_t k = 0; k < 4; ++k) {
      chosen.entries[token * 4 + k] = static_cast<std::int32_t>(k + 1);
    }
  }
  p.hidden[1 * 9 + 3] = std::nanf("");
  chosen.log_sum_exp[2] = std::nanf("");
  chosen.log_sum_exp[3] = infinity;
  chosen.log_sum_exp[4] = -infinity;
  auto const found = results_of(exec, p, chosen);
  CHECK(wrong_chosen(p, chosen, found, 3e-6) == 0);
  CHECK(found[1] == -infinity);
  CHECK(found[2] == infinity);
  CHECK(std::isnan(found[3]));
  CHECK(found[3 * 4] == -infinity);
  p.map = in_double(curved{});  // which is not called for a masked entry
  CHECK(results_of(exec, p, chosen, curved{})[1] == -infinity);
}

TEST_CASE("inputs of chosen entries are refused where they do not fit, with both values", "[host]") {
  std::vector<float> values(200);
  std::vector<std::int32_t> entries(12);
  using algorithm = chosen_log_probabilities<float>;
  using inputs = algorithm::inputs<std::int32_t>;
  cpu const exec{.threads = 1};
  auto const message = [&](auto change, linear_loss_options const& options = {}) {
    inputs in{{values.data(), {4, 8}}, {values.data(), {6, 8}}, {entries.data(), {4, 3}}, {values.data(), 4}};
    matrix_view<float> out(values.data() + 100, {4, 3});
    change(in, out);
    std::string const text = message_of([&] { algorithm::forward(exec, in, options, out); });
    std::string const name = "chosen_log_probabilities.forward: ";
    return text.substr(0, name.size()) == name ? text.substr(name.size()) : text;
  };
  auto const nothing = [](inputs&, matrix_view<float>&) {};
  CHECK(message(nothing) == "");
  CHECK(message([&](inputs& in, auto&) {
          in.classifier = {values.data(), {6, 7}};
        }) == "the hidden states have 8 channels but the classifier has 7");
  CHECK(message([&](inputs& in, auto&) {
          in.classifier = {values.data(), {0, 8}};
        }) == "the vocabulary has 0 entries but must have 1 to 2147483647");
  CHECK(message([&](inputs& in, auto&) {
          in.entries = {entries.data(), {3, 3}};
        }) == "there are chosen entries of 3 tokens but hidden states of 4");
  CHECK(message([&](inputs& in, auto&) {
          in.log_sum_exp = {values.data(), 5};
        }) == "there are 5 log-sum-exps but 4 tokens");
  CHECK(message([&](inputs& in, auto&) {
          in.bias = {values.data(), 5};
        }) == "the bias has 5 values but the vocabulary has 6");
  CHECK(message([&](inputs&, auto& out) {
          out = {values.data(), {4, 2}};
        }) == "the log-probabilities are 4 x 2 but the chosen entries 4 x 3");
  CHECK(message([&](inputs&, auto& out) {
          out = {values.data(), {4, 3}, {0, 1}};
        }) == "dimension 0 of the log-probabilities has 4 elements with a stride of 0");
  CHECK(message([&](inputs&, auto& out) {
          out = {nullptr, {4, 3}};
        }) == "the log-probabilities have no memory but 12 elements");
  CHECK(message([&](inputs& in, auto&) {
          in.entries = {nullptr, {4, 3}};
        }) == "the chosen entries have no memory but 12 elements");
  CHECK(message([&](inputs& in, auto&) {
          in.log_sum_exp = {nullptr, 4};
        }) == "the log-sum-exps have no memory but 4 elements");
  CHECK(message([&](inputs& in, auto&) {
          in.hidden = {nullptr, {4, 8}};
        }) == "the hidden states have no memory but 32 elements");
  CHECK(message(nothing, {.temperature = 0.0F}) == "the temperature is 0.000000 but must be positive and finite");
  CHECK(message(nothing, {.softcap = -2.0F}) == "the softcap is -2.000000 but must be finite and not negative");
}
