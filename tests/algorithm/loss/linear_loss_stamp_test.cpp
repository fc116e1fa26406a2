// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A backward pass refuses to follow a forward pass that is not its own.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/loss_gradient_reference.hpp"
#include "support/loss_runs.hpp"
#include "support/loss_stamp_words.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using loss = linear_loss<gemm_tile<float, shape<64, 64, 8>>, paired_reducer<lse_reducer<float>, sum_reducer<float>>>;
using problem_type = loss_problem<float, std::int64_t>;

problem_type full_problem() {
  auto problem = make_loss_problem<float>(70, 90, 16, true);
  problem.options.smoothing = 0.1F;
  return problem;
}

linear_loss_shape shape_of(problem_type const& p) {
  return {p.tokens, p.vocabulary, p.channels};
}

/// One workspace for all passes.
template <class Executor = cpu>
struct both_passes {
  Executor exec;
  buffer<std::byte> memory{exec, 1 << 20};
  std::vector<float> hidden = {};
  std::vector<float> classifier = {};
  std::vector<float> bias = {};

  /// Fills the workspace with equal bytes, or, for a negative value, with random ones.
  void fill(int value) {
    std::vector<std::byte> bytes(1 << 20, static_cast<std::byte>(value));
    for (std::size_t i = 0; value < 0 && i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(testing::hash(static_cast<std::uint64_t>(-value), i));
    }
    exec.copy(bytes, memory);
  }
  void forward(problem_type const& p, bool for_backward = true) {
    auto const plan =
        for_backward ? loss::plan_backward(exec, shape_of(p), p.options) : loss::plan_forward(exec, shape_of(p));
    std::vector<float> value(p.options.reduction == loss_reduction::none ? static_cast<std::size_t>(p.tokens) : 1);
    loss::forward(exec, p.inputs(), p.options, {.loss = value}, workspace(plan, memory));
  }
  /// What wait() says.
  std::string backward(problem_type const& p, bool accumulates = false) {
    auto const plan = loss::plan_backward(exec, shape_of(p), p.options);
    hidden.assign(p.hidden.size(), -7.0F);
    classifier.assign(p.classifier.size(), -7.0F);
    bias.assign(static_cast<std::size_t>(p.vocabulary), -7.0F);
    linear_loss_gradients<float> const out{{hidden.data(), {p.tokens, p.channels}},
                                           {classifier.data(), {p.vocabulary, p.channels}},
                                           bias,
                                           accumulates,
                                           accumulates,
                                           accumulates};
    loss::backward(exec, p.inputs(), p.options, {}, out, workspace(plan, memory));
    return message_of([&] { exec.wait(); });
  }
  /// How many gradients are not NaN.
  std::size_t numbers() const {
    std::size_t count = 0;
    for (auto const* list : {&hidden, &classifier, &bias}) {
      for (float const value : *list) {
        count += std::isnan(value) ? 0U : 1U;
      }
    }
    return count;
  }
};

/// Changes the problem between the passes.
template <class Change>
void check_refused(loss_stamp::part part, Change const& change) {
  auto problem = full_problem();
  both_passes<> passes{.exec = {.threads = 1}};
  passes.forward(problem);
  REQUIRE(passes.backward(problem) == "");
  REQUIRE(passes.numbers() == passes.hidden.size() + passes.classifier.size() + passes.bias.size());
  change(problem);
  std::string const message = passes.backward(problem);
  CHECK_THAT(message, contains("linear_loss.backward: the forward() in the workspace"));
  CHECK_THAT(message, contains(words_of(part)));
  CHECK(passes.numbers() == 0);
}

}  // namespace

TEST_CASE("a backward pass after none is refused, whatever is in the workspace", "[host]") {
  auto const problem = full_problem();
  for (int const value : {-2, -1, 0x00, 0x01, 0x7f, 0x80, 0xee, 0xff}) {
    CAPTURE(value);
    both_passes<> passes{.exec = {.threads = 1}};
    passes.fill(value);
    CHECK_THAT(passes.backward(problem), contains(words_of(loss_stamp::mark)));
    CHECK(passes.numbers() == 0);
    passes.forward(problem);
    CHECK(passes.backward(problem) == "");
  }
}

TEST_CASE("a backward pass after that of another loss is refused", "[host]") {
  check_refused(loss_stamp::reduction, [](auto& p) { p.options.reduction = loss_reduction::sum; });
  check_refused(loss_stamp::reduction, [](auto& p) { p.options.reduction = loss_reduction::none; });
  check_refused(loss_stamp::options, [](auto& p) { p.options.ignore_index = 3; });
  check_refused(loss_stamp::options, [](auto& p) { p.options.shift = 1; });
  check_refused(loss_stamp::options, [](auto& p) { p.options.sequence = 7; });
  check_refused(loss_stamp::options, [](auto& p) { p.options.softcap = 5.0F; });
  check_refused(loss_stamp::options, [](auto& p) { p.options.temperature = 0.5F; });
  check_refused(loss_stamp::options, [](auto& p) { p.options.smoothing = 0.0F; });
  check_refused(loss_stamp::options, [](auto& p) { p.options.z_factor = 1e-4F; });
  check_refused(loss_stamp::options, [](auto& p) { p.options.hidden_threshold = 0.0F; });
  check_refused(loss_stamp::options, [](auto& p) { p.options.classifier_threshold = 0.5F; });
}

TEST_CASE("a backward pass after that of other inputs is refused", "[host]") {
  check_refused(loss_stamp::tokens, [](auto& p) {
    p.tokens = 69;
    p.hidden.resize(69 * 16);
    p.labels.resize(69);
    p.weights.resize(69);
  });
  check_refused(loss_stamp::entries, [](auto& p) { p = make_loss_problem<float>(70, 91, 16, true); });
  check_refused(loss_stamp::channels, [](auto& p) { p = make_loss_problem<float>(70, 90, 8, true); });
  check_refused(loss_stamp::inputs, [](auto& p) { p.hidden[69 * 16 + 15] += 1.0F; });
  check_refused(loss_stamp::inputs, [](auto& p) { p.classifier[5] += 1.0F; });
  check_refused(loss_stamp::inputs, [](auto& p) { p.labels[69] = p.labels[69] == 3 ? 4 : 3; });
  check_refused(loss_stamp::inputs, [](auto& p) { p.bias[89] += 1.0F; });
  check_refused(loss_stamp::inputs, [](auto& p) { p.bias = std::vector<float>(); });
  check_refused(loss_stamp::inputs, [](auto& p) { p.weights[0] += 1.0F; });
  check_refused(loss_stamp::inputs, [](auto& p) { std::swap(p.weights[0], p.weights[1]); });
  check_refused(loss_stamp::inputs, [](auto& p) { p.class_weights.assign(90, 1.0F); });
}

TEST_CASE("what differs between two passes is said with both values", "[host]") {
  both_passes<> passes{.exec = {.threads = 1}};
  passes.forward(full_problem());
  CHECK(passes.backward(make_loss_problem<float>(70, 91, 16, true)) ==
        "linear_loss.backward: the forward() in the workspace was of 90 entries but this backward() is of 91");
  auto summed = full_problem();
  summed.options.reduction = loss_reduction::sum;
  passes.forward(full_problem());
  CHECK(passes.backward(summed) ==
        "linear_loss.backward: the forward() in the workspace had the reduction of number 2 but this backward() has 1");
}

TEST_CASE("inputs that are the same elsewhere are the same", "[host]") {
  auto problem = full_problem();
  both_passes<> passes{.exec = {.threads = 1}};
  passes.forward(problem);
  auto const copy = problem;
  problem.hidden.assign(problem.hidden.size(), 0.0F);
  CHECK(passes.backward(copy) == "");
  CHECK(passes.backward(copy) == "");  // as often as one likes
}

TEST_CASE("a backward pass after a forward pass without room for it is refused", "[host]") {
  auto const problem = full_problem();
  both_passes<> passes{.exec = {.threads = 1}};
  passes.forward(problem, false);
  CHECK_THAT(passes.backward(problem), contains(words_of(loss_stamp::plan)));
  CHECK(passes.numbers() == 0);
}

TEST_CASE("a backward pass in a workspace of a smaller plan is refused at once", "[host]") {
  auto const problem = full_problem();
  cpu const exec{.threads = 1};
  auto const plan = loss::plan_forward(exec, shape_of(problem));
  auto const needed = loss::plan_backward(exec, shape_of(problem), problem.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  loss::forward(exec, problem.inputs(), problem.options, {.loss = value}, space);
  std::string message;
  try {
    loss::backward(exec, problem.inputs(), problem.options, {}, linear_loss_gradients<float>{}, space);
  } catch (shape_error const& e) {
    message = e.what();
  }
  CHECK(message == "linear_loss.backward: the workspace is of a plan of " + std::to_string(plan.bytes()) +
                       " bytes but 70 tokens of 16 channels and 90 entries need " + std::to_string(needed.bytes()));
}

TEST_CASE("what a refused backward pass has taken away must be made again", "[host]") {
  auto problem = full_problem();
  both_passes<> passes{.exec = {.threads = 1}};
  passes.forward(problem);
  problem.options.reduction = loss_reduction::sum;
  CHECK_THAT(passes.backward(problem), contains(words_of(loss_stamp::reduction)));
  problem.options.reduction = loss_reduction::mean;
  CHECK_THAT(passes.backward(problem), contains(words_of(loss_stamp::mark)));
  passes.forward(problem);
  CHECK(passes.backward(problem) == "");
  auto const expected = reference_gradient(problem);
  CHECK(relative_distance(passes.hidden, expected.hidden) < 1e-3);
}

TEST_CASE("a refused backward pass keeps the rules for programs", "[host]") {
  auto problem = full_problem();
  testing::adversary const exec{.seed = 4};
  both_passes<testing::adversary> passes{exec};
  passes.forward(problem);
  problem.options.reduction = loss_reduction::none;
  CHECK_THAT(passes.backward(problem), contains(words_of(loss_stamp::reduction)));
  CHECK(passes.numbers() == 0);
}

TEST_CASE("gradients that a refused backward pass would add become NaN, also those of tokens without a label",
          "[host]") {
  auto const check = [](auto passes) {
    auto problem = full_problem();
    passes.forward(problem);
    REQUIRE(passes.backward(problem, true) == "");
    REQUIRE(passes.numbers() == passes.hidden.size() + passes.classifier.size() + passes.bias.size());
    problem.options.reduction = loss_reduction::sum;
    CHECK_THAT(passes.backward(problem, true), contains(words_of(loss_stamp::reduction)));
    CHECK(passes.numbers() == 0);
  };
  check(both_passes<>{.exec = {.threads = 1}});
  check(both_passes<testing::adversary>{testing::adversary{.seed = 8}});
}
