// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;

namespace {

constexpr std::int64_t ignored = -100;

/// Labels, and the list that the program makes of them.
template <class Label>
struct labelled_tokens {
  label_rule rule;
  std::vector<Label> labels;
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> row_of;
  std::vector<std::int32_t> listed;
  std::vector<std::int64_t> count{-9};
  std::vector<float> loss;
  std::vector<float> entropy;
  std::vector<std::int32_t> prediction;
  std::vector<float> poison{5.0F};

  labelled_tokens(label_rule const& of, std::vector<Label> given)
      : rule(of),
        labels(std::move(given)),
        order(labels.size(), -9),
        row_of(labels.size(), -9),
        listed(labels.size(), -9),
        loss(labels.size(), 7.0F),
        entropy(labels.size(), 7.0F),
        prediction(labels.size(), 7) {}

  template <class Executor>
  void list(Executor const& exec) {
    select_loss_tokens<Label> const program{
        labels, rule, {order, row_of, listed, count}, {loss, {}, {}, entropy, prediction}, poison, exec.status()};
    exec.run(program, 1);
  }

  /// What a plain loop finds wrong.
  int wrong_tokens() const {
    int wrong = 0;
    std::int64_t row = 0;
    bool is_poisoned = false;
    auto const tokens = static_cast<std::int64_t>(labels.size());
    for (std::int64_t token = 0; token < tokens; ++token) {
      auto const at = static_cast<std::size_t>(token);
      bool const has_next = token % rule.sequence + rule.shift < rule.sequence && token + rule.shift < tokens;
      std::int64_t const label = has_next ? labels[static_cast<std::size_t>(token + rule.shift)] : rule.ignore_index;
      bool const is_bad = label != rule.ignore_index && (label < 0 || label >= rule.vocabulary);
      if (label == rule.ignore_index || is_bad) {
        auto const is_right = [&](float value) { return is_bad ? std::isnan(value) : value == 0.0F; };
        wrong += row_of[at] == -1 && is_right(loss[at]) && is_right(entropy[at]) && prediction[at] == -1 ? 0 : 1;
        is_poisoned = is_poisoned || is_bad;
      } else {
        auto const index = static_cast<std::size_t>(row);
        wrong += row_of[at] == row && order[index] == token && listed[index] == label ? 0 : 1;
        wrong += loss[at] == 7.0F && prediction[at] == 7 ? 0 : 1;
        ++row;
      }
    }
    wrong += count[0] == row ? 0 : 1;
    for (std::int64_t rest = row; rest < tokens; ++rest) {
      wrong += order[static_cast<std::size_t>(rest)] == -1 ? 0 : 1;
    }
    return wrong + ((is_poisoned ? std::isnan(poison[0]) : poison[0] == 0.0F) ? 0 : 1);
  }
};

/// Labels of which about a third are ignored.
template <class Label>
std::vector<Label> some_labels(std::size_t count, std::int64_t vocabulary) {
  std::vector<Label> labels(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t const bits = testing::hash(3, i);
    labels[i] = static_cast<Label>(
        bits % 3 == 0 ? ignored : static_cast<std::int64_t>(bits / 3 % static_cast<std::uint64_t>(vocabulary)));
  }
  return labels;
}

}  // namespace

TEST_CASE("tokens with a label are listed in their order, whatever their number", "[host]") {
  cpu const exec{.threads = 1};
  for (std::size_t const count : {0, 1, 7, 1023, 1024, 1025, 3000}) {
    for (std::int64_t const shift : {0, 1, 3}) {
      for (std::int64_t const sequence : {1, 25, 5000}) {
        CAPTURE(count, shift, sequence);
        labelled_tokens<std::int64_t> wide({ignored, shift, sequence, 50}, some_labels<std::int64_t>(count, 50));
        wide.list(exec);
        CHECK(wide.wrong_tokens() == 0);
      }
    }
  }
  labelled_tokens<std::int32_t> narrow({ignored, 1, 10, 1}, some_labels<std::int32_t>(500, 1));
  narrow.list(exec);
  CHECK(narrow.wrong_tokens() == 0);
  CHECK_NOTHROW(exec.wait());
}

TEST_CASE("a label outside of the vocabulary poisons the loss and is reported with its position", "[host]") {
  cpu const exec{.threads = 1};
  for (std::int64_t const bad : {std::int64_t{-1}, std::int64_t{50}, std::int64_t{1} << 40}) {
    CAPTURE(bad);
    auto labels = some_labels<std::int64_t>(1500, 50);
    labels[1207] = bad;
    labels[1400] = bad;
    labelled_tokens<std::int64_t> problem({ignored, 1, 1500, 50}, labels);
    problem.list(exec);
    CHECK(problem.wrong_tokens() == 0);
    std::string const message = message_of([&] { exec.wait(); });
    CHECK_THAT(message, tessera_test::contains("1207"));
    CHECK_THAT(message, tessera_test::contains(std::to_string(bad)));
    CHECK_THAT(message, tessera_test::contains("50"));
  }
}

TEST_CASE("listing tokens keeps the rules for programs", "[host]") {
  labelled_tokens<std::int32_t> problem({ignored, 1, 40, 50}, some_labels<std::int32_t>(1100, 50));
  problem.list(testing::adversary{.seed = 2});
  CHECK(problem.wrong_tokens() == 0);
}
